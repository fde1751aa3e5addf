#include "kullback/distill/minillm.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/minillm_rollout.h"
#include "kullback/distill/plain_text.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/preference.h"

namespace kullback {

using at::Tensor;
using RewardToGo = MinillmOptions::RewardToGo;
using Whiten = MinillmOptions::Whiten;
using SingleStepWeight = MinillmOptions::SingleStepWeight;

Tensor mixture_logps(const Tensor& teacher_logps, const Tensor& student_logps, double teacher_mix) {
  return at::logaddexp(teacher_logps + std::log(teacher_mix), student_logps + std::log1p(-teacher_mix));
}

MinillmRewards minillm_rewards(const Tensor& teacher_logps, const Tensor& student_logps, const Tensor& mask,
                               const MinillmOptions& o, const Tensor& sampler_logps) {
  const Tensor p = masked(teacher_logps, mask), q = masked(student_logps, mask);
  const Tensor drawn_by = sampler_logps.defined() ? masked(sampler_logps, mask) : mixture_logps(p, q, o.teacher_mix);
  const Tensor log_ratio = p - q;
  Tensor rewards = log_ratio / o.reward_scaling;
  if (o.reward_clip > 0) rewards = rewards.clamp(-o.reward_clip, o.reward_clip);
  return {.weights = masked((q - drawn_by).exp(), mask),
          .rewards = masked(rewards, mask),
          .reverse_kl_estimate =
              masked(at::expm1(log_ratio) - log_ratio, mask).sum(-1) / token_counts(mask, p).clamp_min(1)};
}

Tensor minillm_advantages(const Tensor& rewards, const Tensor& mask, const MinillmOptions& o) {
  const Tensor r = masked(rewards.to(at::kDouble), mask), counted = mask.to(at::kDouble);
  const int64_t length = r.size(1);
  Tensor returns = at::zeros_like(r), to_go = at::zeros_like(r.select(1, 0)), left = to_go.clone();
  for (int64_t t = length - 1; t >= 0; --t) {
    to_go = r.select(1, t) + o.gamma * to_go;
    left = left + counted.select(1, t);
    returns.select(1, t).copy_(o.length_norm ? to_go / left.clamp_min(1) : to_go);
  }
  if (o.reward_to_go == RewardToGo::exclusive) returns = at::constant_pad_nd(returns.slice(1, 1), {0, 1}, 0);
  returns = masked(returns, mask);
  if (o.whiten == Whiten::none) return returns;
  const Tensor over = o.whiten == Whiten::all ? at::ones_like(counted) : counted;
  const Tensor number = over.sum().clamp_min(1), mean = (over * returns).sum() / number;
  const Tensor variance = (over * (returns - mean).square()).sum() / number;
  return over * (returns - mean) / (variance + 1e-8).sqrt();
}

MinillmLoss minillm_loss(const Responses& b, const Tensor& advantages, const Tensor& old_logps, const Tensor& weights,
                         const Responses& text, const MinillmOptions& o) {
  const CountedTokens c =
      counted_tokens(b.student, b.teacher, b.labels, b.mask, Reduction::token_mean, b.tokens_in_step);
  const auto at_tokens = [&](const Tensor& values) { return values.reshape(-1).index_select(0, c.places); };  // [C]
  HeadRequest request;
  request.labels = c.labels;
  request.logps = true;
  request.divergences = {divergence("kl").from_policy()};
  const HeadStatistics s =
      head_statistics(at_temperature(c.student, o.temperature), at_temperature(c.teacher, o.temperature), request);

  const Tensor& share = c.weights;  // 1/N
  const Tensor a = at_tokens(advantages), w = at_tokens(weights);
  const Tensor ratio = (s.logps - at_tokens(old_logps)).exp() * w;
  const Tensor pg = at::maximum(-a * ratio, -a * ratio.clamp(1 - o.clip, 1 + o.clip));
  const Tensor step = o.single_step_weight == SingleStepWeight::importance ? s.divergences[0] * w : s.divergences[0];
  const Tensor pg_loss = (share * pg).sum(), single = (share * step).sum();
  MinillmLoss result{.loss = o.single_step ? pg_loss + single : pg_loss,
                     .pg_loss = pg_loss.detach(),
                     .single_step_loss = single.detach(),
                     .ratio = at_places(ratio.detach(), c.places, b.mask),
                     .clip_fraction = (share * ((ratio - 1).abs() > o.clip)).sum().detach(),
                     .lm_loss = {},
                     .soft_loss = {},
                     .pretrain_loss = {}};
  if (text.defined()) {
    const PlainTextLoss plain =
        plain_text_loss(text.student, text.teacher, text.labels, text.mask, o.kd_ratio, text.tokens_in_step);
    result.lm_loss = plain.ce_loss, result.soft_loss = plain.soft_loss, result.pretrain_loss = plain.loss.detach();
    result.loss = result.loss + o.lm_coef * plain.loss;
  }
  return result;
}

namespace {

DistillationNeeds needs(const MinillmOptions& o) {
  DistillationNeeds needs;
  needs.sources = {.data = 0, .both = 1};
  needs.together = token_mixture(o.teacher_mix, {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p});
  needs.of_student_by.sampling = needs.together.student;
  needs.text = o.lm_coef > 0;
  needs.text_teacher = o.kd_ratio > 0;
  needs.live_teacher = true;
  return needs;
}

const NumberRange inside_unit{.minimum = 0, .maximum = 1, .minimum_excluded = true, .maximum_excluded = true};

const Registered minillm{
    distillation_method<MinillmOptions>("minillm")
        .summary("Reverse KL of whole responses by policy gradient, drawn from a mixture of teacher and student")
        .formula(
            "loss = mean over tokens of max(-A r, -A clip(r, 1 - c, 1 + c)) + KL(q || p) + lm_coef (plain text)\n"
            "y ~ alpha p + (1 - alpha) q; r = q(y) / q_old(y) * w, w = q_old(y) / (alpha p(y) + (1 - alpha) q_old(y))\n"
            "A: discounted sum of (ln p - ln q_old) / reward_scaling over the tokens left, divided by their number, "
            "whitened")
        .when("When the student is too small for all that the teacher does and should keep to its main modes: it ends "
              "lowest in reverse KL of responses and drops the rest. Two models generate; start from a fine-tuned "
              "student. inclusive with single_step is the authors' code and counts a token's own reward twice; "
              "exclusive with gamma 1 and without whitening is the paper's gradient.")
        .paper({"MiniLLM: Knowledge Distillation of Large Language Models", "2306.08543", "ICLR 2024"})
        .option("teacher-mix", &MinillmOptions::teacher_mix, from_to_below(0, 1),
                "share of the teacher in the law that draws responses", "authors")
        .option("gamma", &MinillmOptions::gamma, fraction, "discount of later rewards", "authors' code; paper 1")
        .option("length-norm", &MinillmOptions::length_norm, "divide returns by the number of tokens left", "authors")
        .option("reward-to-go", &MinillmOptions::reward_to_go,
                {{"inclusive", RewardToGo::inclusive}, {"exclusive", RewardToGo::exclusive}},
                "whether a token's return holds its own reward: the authors' code, or the paper")
        .option("reward-scaling", &MinillmOptions::reward_scaling, positive, "rewards are divided by it",
                "authors' script")
        .option("reward-clip", &MinillmOptions::reward_clip, non_negative, "then kept within this; 0: off",
                "authors' script")
        .option("whiten", &MinillmOptions::whiten,
                {{"none", Whiten::none}, {"masked", Whiten::masked}, {"all", Whiten::all}},
                "advantages to mean 0 and variance 1, over the tokens or, as the authors do, over padding too")
        .option("clip", &MinillmOptions::clip, inside_unit, "how far from 1 a probability ratio pays", "authors")
        .option("single-step", &MinillmOptions::single_step, "add KL(q || p) of every next-token law", "authors")
        .option("single-step-weight", &MinillmOptions::single_step_weight,
                {{"none", SingleStepWeight::none}, {"importance", SingleStepWeight::importance}},
                "weigh that by w, as in the paper")
        .option("kd-ratio", &MinillmOptions::kd_ratio, fraction,
                "share of the teacher in the loss on --text-data; the rest is cross-entropy", "authors")
        .option("lm-coef", &MinillmOptions::lm_coef, non_negative, "weight of the loss on --text-data", "authors")
        .option("ppo-epochs", &MinillmOptions::ppo_epochs, at_least(1), "passes over a rollout", "authors' script")
        .option("num-rollouts", &MinillmOptions::num_rollouts, at_least(1), "prompts of a rollout", "authors' script")
        .option("temperature", &MinillmOptions::temperature, positive,
                "divides the logits of both models, in drawing and in the loss", "authors")
        .option("top-p", &MinillmOptions::top_p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "of the drawing; the loss keeps the whole laws, and w knows the law that drew", "authors")
        .option("top-k", &MinillmOptions::top_k, non_negative, "of the drawing; 0: off", "authors")
        .needs(needs)
        .responses(minillm_responses)
        .loss([](const DistillationBatch& b, const MinillmOptions& o) {
          const MinillmLoss l = minillm_loss(b, b.numbers.at("advantages"), b.numbers.at("old_logps"),
                                             b.numbers.at("weights"), b.text, o);
          DistillationLoss loss{.value = l.loss,
                                .parts = {{"pg_loss", l.pg_loss},
                                          {"single_step_loss", l.single_step_loss},
                                          {"clip_fraction", l.clip_fraction}}};
          if (l.pretrain_loss.defined()) loss.parts["pretrain_loss"] = l.pretrain_loss;
          return loss;
        })
        .after_step(minillm_figures)};

}  // namespace
}  // namespace kullback
