// How the cases of dac-kl's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/dac_kl.h"
#include "kullback/distill/fixture_rows.h"

namespace kullback {
namespace {

using at::Tensor;
using O = DacKlOptions;

CheckOutputs detect_case(CheckCase& c) {
  const Correction found = find_corrections(fixture_rows(c, "student"), fixture_rows(c, "teacher"),
                                            c.tensor("student_tokens"), c.tensor("teacher_tokens"), c.mask("mask"));
  return {{"token_kl", found.token_kl},
          {"position", at::tensor(found.position, at::kLong)},
          {"replacement", at::tensor(found.replacement, at::kLong)},
          {"new_prefix=" + Json(found.prefix).dump(), Tensor()}};
}

DacLoss dac(CheckCase& c, const O& o) {
  const auto tensor = [&](const char* name) { return c.has(name) ? c.tensor(name) : Tensor(); };
  const LevelNetwork network{.w1 = tensor("w1"), .b1 = tensor("b1"), .w2 = tensor("w2"), .b2 = tensor("b2")};
  return dac_kl_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.mask("mask"), network, o);
}

CheckOutputs dac_case(CheckCase& c) {
  const DacLoss l = dac(c, fixture_options<O>(c, "dac-kl"));
  return {{"loss", l.loss},
          {"levels", l.levels},
          {"kept_teacher_mass", l.kept_teacher_mass},
          {"effective_classes", l.effective_classes},
          {"token_loss", l.token_loss},
          {"coverage_penalty", l.coverage_penalty}};
}

Tensor span(CheckCase& c, const O& o) {
  return span_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.tensor("spans"),
                   c.tensor("student_logits").size(1), o.norm);
}

CheckOutputs span_case(CheckCase& c) { return {{"loss", span(c, fixture_options<O>(c, "dac-kl"))}}; }

CheckOutputs total_case(CheckCase& c) {
  const auto o = fixture_options<O>(c, "dac-kl");
  const CountedTokens counted =
      counted_tokens(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.tensor("labels"), c.mask("mask"));
  const Tensor sft = cross_entropy(counted.student, counted.labels, counted.weights).loss, spans = span(c, o);
  const DacLoss l = dac(c, o);
  return {{"loss", o.w_sft * sft + o.w_dac * l.loss + o.w_span * spans},
          {"sft", sft},
          {"dac_kl", l.loss},
          {"span", spans},
          {"mean_kept_teacher_mass", l.kept_teacher_mass.mean()}};
}

const RegisteredCheck detect{"dac-kl", "detect", detect_case};
const RegisteredCheck dac_check{"dac-kl", "dac", dac_case};
const RegisteredCheck span_check{"dac-kl", "span", span_case};
const RegisteredCheck total{"dac-kl", "total", total_case};

}  // namespace
}  // namespace kullback
