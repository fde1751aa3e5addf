// How the cases of gkd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/gkd.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs loss_case(CheckCase& c) {
  const auto input = [&](const char* name) { return c.has(name) ? c.tensor(name) : Tensor(); };
  const GkdLoss l = gkd_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.mask("mask"),
                             fixture_options<GkdOptions>(c, "gkd"), input("labels"), input("rewards"));
  CheckOutputs out{{"loss", l.loss}, {"kd_loss", l.kd_loss}, {"per_token", l.per_token}};
  if (l.rl_loss.defined()) out.insert({{"advantages", l.advantages}, {"rl_loss", l.rl_loss}});
  return out;
}

CheckOutputs source_case(CheckCase& c) {
  const GkdOptions o = fixture_options<GkdOptions>(c, "gkd");
  const Tensor u = c.tensor("uniforms").to(at::kDouble);
  Tensor source = at::empty({u.numel()}, at::kDouble);  // 0: data, 1: student, 2: teacher
  for (int64_t i = 0; i < u.numel(); ++i) {
    const ResponseSource s = gkd_source(u[i].item<double>(), o);
    source[i] = s == ResponseSource::student ? 1 : s == ResponseSource::teacher ? 2 : 0;
  }
  return {{"source", source}};
}

/// Every prefix once, and how often the student and the data come by it; the visits have no gradient.
CheckOutputs exact_world_case(CheckCase& c) {
  const SequenceSpace space{
      .vocabulary = c.option<int64_t>("vocab", 2), .length = c.option<int64_t>("length", 1), .ends = false};
  GkdOptions o;
  o.lambda = c.option("lambda", o.lambda), o.beta = c.option("beta", o.beta), o.reduction = Reduction::sum;
  const Tensor student = c.tensor("student_prefix_logits"), teacher = c.tensor("teacher_prefix_logits");
  const auto visits = [&](const Tensor& rows) { return prefix_logps(space, rows.detach())[0].exp(); };  // [P]
  const Tensor by_student = visits(log_probabilities(as_rows(student)).unsqueeze(0));
  const Tensor data = c.tensor("data_sequence_probs").to(at::kDouble);
  const Tensor by_data = visits(conditional_logps(space, data.log().unsqueeze(0)));

  RowDivergence d = kd_divergence(gkd_divergence(o)).from_reference();
  HeadRequest request;
  request.divergences = {d};
  HeadStatistics weights;
  const double length = static_cast<double>(space.length);
  weights.divergences = {(o.lambda * by_student + (1 - o.lambda) * by_data) / length};
  const HeadLoss l = head_loss(as_rows(student), as_rows(teacher.to(at::kDouble)), request, weights);
  const Tensor per_prefix = l.statistics.divergences[0];
  return {{"loss", l.loss},
          {"per_prefix", per_prefix},
          {"student_visits", by_student},
          {"data_visits", by_data},
          {"on_policy", (by_student * per_prefix).sum() / length},
          {"off_policy", (by_data * per_prefix).sum() / length}};
}

const RegisteredCheck loss_check{"gkd", "loss", loss_case};
const RegisteredCheck source_check{"gkd", "source", source_case};
const RegisteredCheck world_check{"gkd", "exact_world", exact_world_case};

}  // namespace
}  // namespace kullback
