// Moment matching as `kullback distill` runs it: the critics and their steps.
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/moment_matching.h"
#include "kullback/train/distillation.h"
#include "kullback/train/optimizer.h"

namespace kullback {
namespace {

using at::Tensor;
using O = MomentMatchingOptions;

/// Each critic is E (A h + b) / sqrt(d) of the student's last hidden state h; both start near 0.
Modules critics(const DistillationSizes& sizes, const O& o) {
  Modules modules;
  if (o.critic == O::Critic::best_response) return modules;
  const auto normal = [&](const std::string& name, int64_t rows, int64_t columns, double deviation) {
    RandomStream stream(sizes.seed, "moment-matching/" + name);
    const Tensor w = at::empty({rows, columns}, at::kFloat);
    float* out = w.mutable_data_ptr<float>();
    for (int64_t i = 0; i < w.numel(); ++i) out[i] = static_cast<float>(deviation * stream.normal());
    modules.push_back({name, w});
  };
  for (const std::string side : {"on", "off"}) {
    normal(side + "_a", o.critic_width, sizes.student_width, 1 / std::sqrt(static_cast<double>(sizes.student_width)));
    modules.push_back({side + "_b", at::zeros({o.critic_width})});
    normal(side + "_e", sizes.student_vocabulary, o.critic_width, 0.01);
  }
  return modules;
}

MomentSide side_of(const Responses& r, const std::map<std::string, Tensor>& modules, bool on, const O& o) {
  MomentSide side{.student = r.student, .teacher = r.teacher, .labels = r.labels, .mask = r.mask};
  if (o.critic == O::Critic::best_response) return side;
  const std::string name = on ? "on" : "off";
  const Tensor& a = modules.at(name + "_a");
  // The student must not move its features to please the critic: it sees them without gradient.
  const Tensor h = r.student.hidden.detach().to(a.scalar_type());
  side.critic.hidden =
      (at::matmul(h, a.t()) + modules.at(name + "_b")) / std::sqrt(static_cast<double>(o.critic_width));
  side.critic.weight = modules.at(name + "_e");
  return side;
}

/// Adam on both critics, up the gap. Its moments are kept in the run's state.
void climb(DistillationStep& step, const O& o) {
  if (o.critic == O::Critic::best_response) return;
  std::vector<NamedTensor> parameters;
  for (const auto& [name, tensor] : step.modules) parameters.push_back({name, tensor});
  Optimizer adam(parameters, {});
  for (const NamedTensor& moment : adam.moments()) {
    const auto known = step.state.tensors.find("critic/" + moment.name);
    if (known != step.state.tensors.end()) moment.tensor.copy_(known->second);
  }
  adam.set_steps(step.step * o.critic_steps);
  const std::vector<Response> of_teacher =
      o.off_weight > 0 ? step.run.stored(ResponseSource::teacher, step.examples) : std::vector<Response>{};
  const auto rows = static_cast<double>(step.examples.size());
  for (int64_t i = 0; i < o.critic_steps; ++i) {
    const auto ascend = [&](std::span<const Response> responses, bool on) {
      step.run.each_batch(responses, [&](const DistillationBatch& b) {
        const at::AutoGradMode with_gradients(true);
        const Tensor gap = moment_gap(side_of(b, step.modules, on, o), on, o, rows);
        (-(on ? o.on_weight : o.off_weight) * gap).backward();
      });
    };
    if (o.on_weight > 0) ascend(step.responses, true);
    if (o.off_weight > 0) ascend(of_teacher, false);
    adam.step(o.critic_lr);
    adam.clear_gradients();
  }
  for (const NamedTensor& moment : adam.moments()) step.state.tensors["critic/" + moment.name] = moment.tensor.clone();
}

DistillationLoss loss(const DistillationBatch& b, const O& o) {
  const double rows = b.sequences_in_step;
  DistillationLoss result{.value = at::zeros({}, at::kDouble), .parts = {}};
  const auto add = [&](const Responses& r, bool on) {
    std::map<std::string, Tensor> modules;
    for (const auto& [name, tensor] : b.modules) modules[name] = tensor.detach();
    const MomentSide side = side_of(r, modules, on, o);
    const MomentPart part = on ? moment_on_policy(side, o, rows) : moment_off_policy(side, o, rows);
    const std::string name = on ? "on" : "off";
    result.value = result.value + (on ? o.on_weight : o.off_weight) * part.loss;
    result.parts[name + "_gap"] = part.gap;
    if (part.total_variation.defined())
      result.parts[name + "_total_variation"] = part.total_variation.masked_select(r.mask);
  };
  if (o.on_weight > 0) add(b, true);
  if (o.off_weight > 0) add(b.of_teacher, false);
  return result;
}

DistillationNeeds needs(const O& o) {
  DistillationNeeds needs;
  needs.sources = {.data = 0, .student = 1};
  needs.of_teacher = o.off_weight > 0;
  needs.side_teacher = o.off_estimator == O::Estimator::expected || o.critic == O::Critic::best_response;
  return needs;
}

void check(const O& o) {
  if (o.on_weight == 0 && o.off_weight == 0) fail("option --on-weight: it and --off-weight are both 0");
  if (o.critic == O::Critic::best_response && o.critic_bound == 0)
    fail("option --critic-bound: 0 is no bound, and the best response needs one");
}

const Choices<O::Estimator> estimators{{"sampled", O::Estimator::sampled}, {"expected", O::Estimator::expected}};

const Registered moment_matching{
    distillation_method<O>("moment-matching")
        .summary(
            "Adversarial moment matching: critics find where teacher and student differ, the student closes the gap")
        .formula(
            "min over the student, max over critics f1, f2 of on_weight L_on + off_weight L_off\n"
            "L_off = E_teacher sum_t gamma^t (f1(s,y) - sum_a q_a f1(s,a)), L_on = E_student sum_t gamma^t (sum_a p_a "
            "f2(s,a) - f2(s,y))")
        .when(
            "When what counts is the return of whole responses under a reward that is not known. critic best_response "
            "needs no network and minimises the total variation on both models' responses.")
        .paper({"Adversarial Moment-Matching Distillation of Large Language Models", "2406.02959", "NeurIPS 2024"})
        .option("gamma", &O::gamma, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "discount a token")
        .option("on-weight", &O::on_weight, non_negative, "weight of the student's responses")
        .option("off-weight", &O::off_weight, non_negative, "weight of the teacher's responses")
        .option("critic-bound", &O::critic_bound, non_negative, "bound of the critics' values; 0: none")
        .option("critic-steps", &O::critic_steps, at_least(1), "steps of the critics before each of the student's")
        .option("critic-lr", &O::critic_lr, positive, "learning rate of the critics")
        .option("on-estimator", &O::on_estimator, estimators,
                "the student's responses: the drawn token's value, or its expectation with its direct gradient")
        .option("off-estimator", &O::off_estimator, estimators,
                "the teacher's responses: the drawn token's value, or the teacher's expectation")
        .option("baseline", &O::baseline, "keep the teacher's expected value in the returns: less variance")
        .option("normalize", &O::normalize, {{"none", O::Normalize::none}, {"length", O::Normalize::length}},
                "divide each response by its length")
        .option("critic", &O::critic, {{"learned", O::Critic::learned}, {"best_response", O::Critic::best_response}},
                "a trained critic, or the bounded one of the largest gap")
        .option("critic-width", &O::critic_width, at_least(1), "width of a learned critic")
        .needs(needs)
        .validate(check)
        .modules(critics)
        .before_step(climb)
        .loss(loss)};

}  // namespace
}  // namespace kullback
