// SALSA as `kullback align` runs it: rollouts, their scores, and passes of PPO over them. In the terms of distillation.h the
// policy is the student, and the average that holds it the teacher.
#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/align/salsa.h"
#include "kullback/base/error.h"
#include "kullback/divergence/head.h"
#include "kullback/divergence/sampled_kl.h"
#include "kullback/rewards/reward.h"
#include "kullback/train/rollouts.h"

namespace kullback {
namespace {

using at::Tensor;
using O = SalsaOptions;

Rollouts rollouts_of(const O& o, const DistillationStep& step) {
  return {.name = "salsa",
          .size = o.num_rollouts > 0 ? o.num_rollouts : std::ssize(step.examples),
          .passes = o.num_ppo_epochs};
}

/// [B,T] the log-probability of each label, 0 beyond the responses' ends.
Tensor logps_of(const Rows& rows, const DistillationBatch& b) {
  const Tensor labels = at::where(b.mask, b.labels, -100).reshape(-1);
  return label_logps(rows, labels).reshape(b.mask.sizes()).to(at::kDouble);
}

/// [B,T] what the value head makes of the policy's last hidden states.
Tensor values_of(const DistillationBatch& b) {
  const Tensor& w = b.modules.at("value_w");
  return (at::mv(b.student.hidden.to(w.scalar_type()), w) + b.modules.at("value_b"))
      .reshape(b.mask.sizes())
      .to(at::kDouble);
}

/// Responses of the policy with all that PPO holds constant while it passes over them.
std::vector<Response> new_rollout(DistillationStep& step, int64_t rollout, const O& o) {
  const at::NoGradGuard no_grad;
  std::vector<Response> responses =
      step.run.draw(ResponseSource::student, rollout_examples(rollouts_of(o, step), step, rollout),
                    fmt::format("salsa/rollout {}", rollout));
  size_t next = 0;
  step.run.each_batch(responses, [&](const DistillationBatch& b) {
    const auto these = std::span(responses).subspan(next, static_cast<size_t>(b.mask.size(0)));
    keep_numbers(these, "old_logps", logps_of(b.student, b));
    keep_numbers(these, "reference_logps", logps_of(b.teacher, b));
    keep_numbers(these, "old_values", values_of(b));
    next += these.size();
  });
  const std::vector<double> scores = step.run.scores(responses);
  const PpoSamples samples{.old_logps = padded_numbers(responses, "old_logps"),
                           .reference_logps = padded_numbers(responses, "reference_logps"),
                           .old_values = padded_numbers(responses, "old_values"),
                           .scores = at::tensor(scores, at::kDouble),
                           .mask = padded_mask(responses)};
  const PpoTargets targets = ppo_targets(samples, o);
  keep_numbers(responses, "advantages", targets.advantages);
  keep_numbers(responses, "returns", targets.returns);

  const Tensor u = samples.old_logps - samples.reference_logps;  // 0 beyond the responses' ends
  const double count = static_cast<double>(responses.size()), tokens = std::max(1.0, samples.mask.sum().item<double>());
  step.state.values["figures"] = {{"score", samples.scores.mean().item<double>()},
                                  {"sequence_kl", u.sum().item<double>() / count},
                                  {"token_kl_k1", u.sum().item<double>() / tokens},
                                  {"token_kl_k3", k3_estimate(u).sum().item<double>() / tokens},
                                  {"response_length", tokens / count}};
  return responses;
}

DistillationLoss loss(const DistillationBatch& b, const O& o) {
  const auto number = [&](const char* name) { return b.numbers.at(name).to(at::kDouble); };
  const PpoSamples samples{.old_logps = number("old_logps"),
                           .reference_logps = {},
                           .old_values = number("old_values"),
                           .scores = {},
                           .mask = b.mask};
  PpoTargets targets;
  targets.advantages = number("advantages"), targets.returns = number("returns");
  const PpoLoss l = ppo_loss(samples, targets, logps_of(b.student, b), values_of(b), o);
  // A batch that is a part of its step counts as its tokens do.
  const double share = b.tokens_in_step > 0 ? b.mask.sum().item<double>() / b.tokens_in_step : 1;
  const auto part = [&](const Tensor& x) { return share * x.detach(); };
  return {.value = share * l.loss,
          .parts = {{"policy_loss", part(l.policy_loss)},
                    {"value_loss", part(l.value_loss)},
                    {"clip_fraction", part(l.clip_fraction)},
                    {"approximate_kl", part(l.approximate_kl)}}};
}

void check(const O& o) {
  if (o.reward.empty()) fail("option --reward: salsa needs one: {}", reward_grammar_text());
  static_cast<void>(reward(o.reward));
  if (o.soup.empty()) fail("option --soup: names no other supervised model to average --model with");
  if (!o.soup_weights.empty() && o.soup_weights.size() != o.soup.size() + 1)
    fail("option --soup-weights: {} weights are given for --model and {} others", o.soup_weights.size(), o.soup.size());
  if (o.soup_weights.empty() && o.soup.size() > 1 && o.alpha != O{}.alpha)
    fail("option --alpha: weighs --model against one other; give --soup-weights for {} others", o.soup.size());
  if (!o.soup_weights.empty() && std::accumulate(o.soup_weights.begin(), o.soup_weights.end(), 0.0) <= 0)
    fail("option --soup-weights: their sum is 0");
}

const Registered salsa{
    distillation_method<O>("salsa", Family::alignment)
        .summary("PPO whose KL penalty is taken to the weight average of two supervised models")
        .formula("soup   = alpha * model 1 + (1 - alpha) * model 2, weight by weight, frozen\n"
                 "goal   = max E[score] - kl_coef * KL(policy || soup), the policy beginning at model 1\n"
                 "reward = -kl_coef * kl(token), and the score at the last token; advantages by GAE(gamma, lam)\n"
                 "loss   = mean over tokens of max(-A ratio, -A clip(ratio, 1 +- cliprange))\n"
                 "         + vf_coef / 2 * mean of max((v - R)^2, (clip(v, old +- cliprange_value) - R)^2)")
        .when("When two supervised models of one pretrained model are at hand (`kullback sft` with two seeds): their "
              "average lies where rewards are higher, and leaves the policy more room. --model is the first of them, "
              "--soup the other; prompts are those of any rows. The KL begins above 0. Watch token_kl_k3 beside "
              "token_kl_k1: a negative k1 is reward for text that the soup finds likelier than the policy does.")
        .paper({"SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF", "2411.01798",
                "FITML at NeurIPS 2024"})
        .option("reward", &O::reward, "what a response is scored by: a name that `kullback frontier --reward` knows")
        .option("soup", &O::soup,
                "the other supervised models: names, files, folders, or PEFT adapters of --model, which are merged")
        .option("alpha", &O::alpha, fraction, "weight of --model in the average with one other; 1 is PPO", "paper")
        .option("soup-weights", &O::soup_weights, non_negative,
                "weights of --model and of each other in the average; without them equal for several others")
        .option("policy-init", &O::policy_init, {{"model", O::PolicyInit::model}, {"soup", O::PolicyInit::soup}},
                "where the policy begins: at --model, or at the average (with --train full)", "paper")
        .option("kl-coef", &O::kl_coef, non_negative, "weight of the KL penalty", "TRL")
        .option("kl-estimator", &O::kl_estimator, {{"k1", O::Estimator::k1}, {"k3", O::Estimator::k3}},
                "of a token's KL, from the sample", "TRL")
        .option("gamma", &O::gamma, fraction, "discount", "TRL")
        .option("lam", &O::lam, fraction, "decay of the advantage estimator", "TRL")
        .option("cliprange", &O::cliprange, positive, "how far a probability ratio counts", "TRL")
        .option("cliprange-value", &O::cliprange_value, positive, "how far a value may move", "TRL")
        .option("vf-coef", &O::vf_coef, positive, "weight of the value loss", "TRL")
        .option("whiten-rewards", &O::whiten_rewards, "rewards over their deviation", "TRL")
        .option("whiten-advantages", &O::whiten_advantages, "advantages less their mean, over their deviation", "TRL")
        .option("num-rollouts", &O::num_rollouts, non_negative,
                "responses that are drawn and scored at once; 0: as many as a step has rows")
        .option("num-ppo-epochs", &O::num_ppo_epochs, at_least(1), "passes over what was drawn", "TRL")
        .option("response-tokens", &O::response_tokens, at_least(1), "length of a drawn response at most")
        .option("value-lr", &O::value_lr, positive, "peak learning rate of the value head on the policy's last states")
        .needs([](const O& o) {
          DistillationNeeds needs;
          needs.sources = {.data = 0, .student = 1};
          needs.of_student_by.max_new_tokens = o.response_tokens;
          needs.live_teacher = true;
          needs.reward = o.reward;
          needs.modules_rate = o.value_lr;
          return needs;
        })
        .validate(check)
        .modules([](const DistillationSizes& sizes, const O&) {
          return Modules{{"value_w", at::zeros({sizes.student_width})}, {"value_b", at::zeros({1})}};
        })
        .responses([](DistillationStep& step, const O& o) {
          return rollout_responses(rollouts_of(o, step), step,
                                   [&](int64_t rollout) { return new_rollout(step, rollout, o); });
        })
        .loss(loss)
        .after_step([](DistillationStep& step, Figures& figures, const O&) { add_rollout_figures(step, figures); })};

}  // namespace
}  // namespace kullback
