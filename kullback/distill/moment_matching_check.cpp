// How the cases of moment-matching's golden fixture are computed.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/moment_matching.h"
#include "kullback/distill/moment_world.h"

namespace kullback {
namespace {

using at::Tensor;
using O = MomentMatchingOptions;

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<O>(c, "moment-matching");
  CheckOutputs out{{"loss", at::zeros({}, at::kDouble)}, {"moment_gap", at::zeros({}, at::kDouble)}};
  for (const bool on : {true, false}) {
    const std::string side_name = on ? "on" : "off";
    if (!c.has(side_name + "_mask")) continue;
    const Tensor raw = c.tensor(side_name + "_critic").to(at::kDouble).detach().requires_grad_(true);
    Rows critic;
    critic.hidden = raw.flatten(0, 1);
    const MomentSide side{.student = fixture_rows(c, side_name + "_student"),
                          .teacher = fixture_rows(c, side_name + "_teacher"),
                          .critic = critic,
                          .labels = c.tensor(side_name + "_labels"),
                          .mask = c.mask(side_name + "_mask")};
    const MomentPart part = on ? moment_on_policy(side, o) : moment_off_policy(side, o);
    const double weight = on ? o.on_weight : o.off_weight;
    out["loss"] = out["loss"] + weight * part.loss;
    const Tensor gap = weight * moment_gap(side, on, o);
    out["moment_gap"] = out["moment_gap"] + gap.detach();
    out["ascent_" + side_name + "_critic"] = torch::autograd::grad({gap}, {raw})[0];
    out[side_name + "_gap"] = part.gap, out[side_name + "_per_token"] = part.per_token;
    if (on) out["on_returns"] = part.returns;
  }
  return out;
}

CheckOutputs best_response_case(CheckCase& c) {
  auto o = fixture_options<O>(c, "moment-matching");
  o.critic = O::Critic::best_response, o.off_estimator = O::Estimator::expected;
  const Tensor mask = c.mask("mask");
  const MomentSide side{.student = fixture_rows(c, "student"),
                        .teacher = fixture_rows(c, "teacher"),
                        .labels = at::zeros(mask.sizes(), at::kLong),
                        .mask = mask};
  const MomentPart part = moment_off_policy(side, o);
  const Tensor critic = best_response(side.student.hidden.detach(), side.teacher.hidden, o.critic_bound)
                            .masked_fill(~mask.reshape({-1, 1}), 0);
  return {{"loss", part.loss},
          {"critic", critic.reshape(c.tensor("teacher_logits").sizes())},
          {"total_variation", part.total_variation},
          {"per_token", part.per_token}};
}

CheckOutputs exact_world_case(CheckCase& c) {
  const SequenceSpace space{
      .vocabulary = c.option<int64_t>("vocab", 2), .length = c.option<int64_t>("length", 1), .ends = false};
  const auto rows = [&](const char* name) { return at::log_softmax(c.tensor(name).to(at::kDouble), 1); };
  const MomentWorld w = moment_world(space, rows("teacher_prefix_logits"), rows("student_prefix_logits"),
                                     c.tensor("rewards").to(at::kDouble), c.option("gamma", 1.0));
  return {{"loss", w.teacher_return - w.student_return},
          {"teacher_return", w.teacher_return},
          {"student_return", w.student_return},
          {"teacher_action_values", w.teacher_values},
          {"student_action_values", w.student_values},
          {"off_gap", w.off_gap},
          {"on_gap", w.on_gap},
          {"total_variation_bound_on", w.bound_on},
          {"total_variation_bound_off", w.bound_off}};
}

const RegisteredCheck loss_check{"moment-matching", "loss", loss_case};
const RegisteredCheck best_response_check{"moment-matching", "best_response", best_response_case};
const RegisteredCheck world_check{"moment-matching", "exact_world", exact_world_case};

}  // namespace
}  // namespace kullback
