#include "kullback/distill/gkd.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/counted.h"
#include "kullback/rewards/reward.h"

namespace kullback {

using at::Tensor;
using Baseline = GkdOptions::Baseline;

KdOptions gkd_divergence(const GkdOptions& o) {
  using Objective = KdOptions::Objective;
  return {.divergence = o.beta == 0   ? Objective::forward_kl
                        : o.beta == 1 ? Objective::reverse_kl
                                      : Objective::js,
          .temperature = o.temperature,
          .reduction = o.reduction,
          .js_beta = o.beta};
}

ResponseSource gkd_source(double u, const GkdOptions& o) {
  if (o.gkd_alpha || u < o.lambda) return ResponseSource::student;
  return o.sequence_kd ? ResponseSource::teacher : ResponseSource::data;
}

namespace {

/// REINFORCE on whole responses: sum over rows and tokens of -advantage ln q(label), divided by the rows of the step.
HeadLoss reward_loss(const Rows& student, const Tensor& labels, const Tensor& mask, const Tensor& advantages,
                     const GkdOptions& o, double rows) {
  const CountedTokens c = counted_tokens(student, student, labels, mask, Reduction::sum, 0, 0, advantages / rows);
  return cross_entropy(at_temperature(c.student, o.temperature), c.labels, c.weights);
}

}  // namespace

GkdLoss gkd_loss(const Rows& student, const Rows& teacher, const Tensor& mask, const GkdOptions& o,
                 const Tensor& labels, const Tensor& rewards, double tokens_in_step, double sequences_in_step) {
  if (o.gkd_alpha.has_value() != rewards.defined()) {
    fail("option --gkd-alpha: {}", rewards.defined() ? "rewards need it" : "it weighs a reward, and there is none");
  }
  const KdLoss kd = kd_loss(student, teacher, {}, mask, gkd_divergence(o), tokens_in_step, sequences_in_step);
  GkdLoss result{.loss = kd.loss, .kd_loss = kd.kd_loss, .per_token = kd.per_token, .advantages = {}, .rl_loss = {}};
  if (!rewards.defined()) return result;
  const Tensor r = rewards.to(at::kDouble);
  result.advantages = o.baseline == Baseline::none ? r : r - r.mean();
  const double rows = sequences_in_step > 0 ? sequences_in_step : static_cast<double>(r.size(0));
  const HeadLoss rl = reward_loss(student, labels, mask, result.advantages, o, rows);
  result.rl_loss = rl.loss.detach();
  result.loss = (1 - *o.gkd_alpha) * rl.loss + *o.gkd_alpha * kd.loss;
  return result;
}

namespace {

DistillationNeeds needs(const GkdOptions& o) {
  DistillationNeeds needs;
  const double student = o.gkd_alpha ? 1 : o.lambda;
  needs.sources = {
      .data = o.sequence_kd ? 0 : 1 - student, .teacher = o.sequence_kd ? 1 - student : 0, .student = student};
  needs.of_student_by.sampling.temperature = o.gen_temperature;
  needs.of_student_by.max_new_tokens = o.max_new_tokens;
  needs.similarity = o.gkd_alpha && o.reward.empty();
  needs.scores = o.gkd_alpha && !o.reward.empty();
  if (needs.scores) needs.reward = o.reward;
  return needs;
}

std::vector<Response> responses(DistillationStep& step, const GkdOptions& o) {
  const double u = RandomStream(step.seed, "gkd", static_cast<uint64_t>(step.step)).uniform();
  switch (gkd_source(u, o)) {
    case ResponseSource::student:
      return step.run.draw(ResponseSource::student, step.examples, fmt::format("gkd/{}", step.step));
    case ResponseSource::teacher: return step.run.stored(ResponseSource::teacher, step.examples);
    default: return step.run.data(step.examples);
  }
}

const Registered gkd{
    distillation_method<GkdOptions>("gkd")
        .summary("On-policy distillation: the teacher corrects the student's own responses, token by token")
        .formula("loss = mean over sequences of the mean over their tokens of D(p, q)\n"
                 "D = beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + (1 - beta) q; beta 0: KL(p || q); "
                 "beta 1: KL(q || p)\n"
                 "p, q = softmax(teacher, student logits / temperature); responses: the student's with probability "
                 "lambda\n"
                 "with gkd_alpha a: (1 - a) rl + a loss, rl = -mean of (reward - baseline) ln q(response)")
        .when("When the student makes mistakes that the data never shows, as it does on long responses. lambda 1 with "
              "a mode-seeking beta is the paper's usual best; it costs a generation a step. Start from a student that "
              "already answers sensibly. distillm samples less often.")
        .paper({"On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes", "2306.13649",
                "ICLR 2024"})
        .option("lambda", &GkdOptions::lambda, fraction,
                "probability that a step trains on the student's own responses; 0 never samples", "TRL; paper 1")
        .option("beta", &GkdOptions::beta, fraction,
                "weight of the teacher in the divergence's mixture; 0: forward KL, 1: reverse KL", "TRL")
        .option("temperature", &GkdOptions::temperature, positive, "divides the logits of both models in the loss",
                "TRL")
        .option("gen-temperature", &GkdOptions::gen_temperature, positive, "temperature of the student's responses",
                "paper; TRL 0.9")
        .option("max-new-tokens", &GkdOptions::max_new_tokens, at_least(1), "longest response of the student", "TRL")
        .option("sequence-kd", &GkdOptions::sequence_kd, "the teacher's responses in place of the data's")
        .option("reduction", &GkdOptions::reduction, reductions(),
                "mean over the sequences' means, mean over all counted tokens, or sum", "paper; TRL token_mean")
        .option("gkd-alpha", &GkdOptions::gkd_alpha, fraction,
                "weight of the divergence against a reward of the student's responses; off: no reward")
        .option(
            "reward", &GkdOptions::reward,
            "with --gkd-alpha: a name that `kullback frontier --reward` knows, such as model:FOLDER; without it the "
            "ROUGE-L of the response to the data's")
        .option("baseline", &GkdOptions::baseline, {{"none", Baseline::none}, {"batch_mean", Baseline::batch_mean}},
                "what is taken from each reward")
        .needs(needs)
        .validate([](const GkdOptions& o) {
          if (o.reward.empty()) return;
          if (!o.gkd_alpha) fail("option --reward: weighs nothing without --gkd-alpha");
          static_cast<void>(reward(o.reward));
        })
        .responses(responses)
        .loss([](const DistillationBatch& b, const GkdOptions& o) {
          const Tensor rewards = !o.gkd_alpha ? Tensor() : o.reward.empty() ? b.similarity : b.scores;
          const GkdLoss l =
              gkd_loss(b.student, b.teacher, b.mask, o, b.labels, rewards, b.tokens_in_step, b.sequences_in_step);
          DistillationLoss loss{.value = l.loss, .parts = {{"kd_loss", l.kd_loss}}};
          if (rewards.defined()) loss.parts.insert({{"rl_loss", l.rl_loss}, {"reward", rewards}});
          return loss;
        })};

}  // namespace
}  // namespace kullback
