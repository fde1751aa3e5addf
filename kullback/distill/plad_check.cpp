// How the cases of plad's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/plad.h"

namespace kullback {
namespace {

using at::Tensor;

PladOptions options_of(const CheckCase& c) {
  Json given = c.options();
  given.erase("check");  // says that no authors' code was asked
  for (const char* flag : {"length_normalise", "filter_by_score"}) {
    if (given.contains(flag)) given[flag] = given[flag] != 0 && given[flag] != false;
  }
  PladOptions o;
  find_method("plad").options->assign(&o, given, c.where());
  return o;
}

CheckOutputs loss_case(CheckCase& c) {
  const auto side = [&](const std::string& name) {
    return Side{.logps = c.tensor("policy_" + name + "_logps"),
                .reference_logps = {},
                .mask = c.mask(name + "_mask"),
                .divergences = {}};
  };
  const auto scores = [&](const char* name) { return c.has(name) ? c.tensor(name) : Tensor(); };
  const PladLoss l = plad_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}}, options_of(c),
                               scores("score_chosen"), scores("score_rejected"));
  return {{"loss", l.loss},
          {"calibration_loss", l.calibration_loss},
          {"regulariser", l.regulariser},
          {"margin", l.margin},
          {"gap", l.gap},
          {"active_fraction", l.active_fraction},
          {"ranking_accuracy", l.ranking_accuracy}};
}

CheckOutputs pairs_case(CheckCase& c) {
  const PladOptions o = options_of(c);
  const auto responses = [&](const char* name) { return c.input(name).get<std::vector<std::vector<int32_t>>>(); };
  const auto chosen = responses("teacher_responses"), rejected = responses("student_responses");
  const auto score = [&](const char* name, size_t i) {
    return c.has(name) ? c.tensor(name)[static_cast<int64_t>(i)].item<double>() : 0.0;
  };
  std::vector<int64_t> kept;
  Json reasons = Json::array();
  for (size_t i = 0; i < chosen.size(); ++i) {
    reasons.push_back(plad_verdict(chosen[i], rejected[i], score("score_chosen", i), score("score_rejected", i), o));
    if (reasons.back() == "kept") kept.push_back(static_cast<int64_t>(i));
  }
  return {{"kept", at::tensor(kept, at::kLong)}, {"reason=" + reasons.dump(), {}}};
}

const RegisteredCheck loss_check{"plad", "loss", loss_case};
const RegisteredCheck pairs_check{"plad", "pairs", pairs_case};

}  // namespace
}  // namespace kullback
