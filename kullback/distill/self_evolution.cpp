#include "kullback/distill/self_evolution.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using Threshold = SelfEvolutionOptions::Threshold;
using Ratio = SelfEvolutionOptions::Ratio;
using Mix = SelfEvolutionOptions::Mix;
using EasyTarget = SelfEvolutionOptions::EasyTarget;

Tensor wanted_law(const Tensor& teacher_logits, const Tensor& labels, double lam) {
  const Tensor label = labels.unsqueeze(1);
  const Tensor rest = at::log_softmax(teacher_logits, 1) + std::log1p(-lam);
  const Tensor at_label = at::logaddexp(rest.gather(1, label), at::full_like(label, std::log(lam), rest.options()));
  return rest.scatter(1, label, at_label);
}

namespace {

/// ln((1 - alpha) q + alpha r), alpha [n,1], never through q itself.
Tensor proxy(const Tensor& log_q, const Tensor& log_r, const Tensor& alpha) {
  const Tensor ours = log_q + at::log1p(-alpha), theirs = log_r + alpha.log();
  const Tensor nothing = (ours == theirs) & ours.isinf();  // neither law has the token: no gradient, and no inf - inf
  return at::logaddexp(ours.masked_fill(nothing, 0), theirs.masked_fill(nothing, 0))
      .masked_fill(nothing, -std::numeric_limits<double>::infinity());
}

/// What each token's loss is, [n]: KL(target || student) with the proxy in the place that `mix` gives it.
Tensor token_loss(const Tensor& student, const Tensor& teacher, const Tensor& labels, const Tensor& hard,
                  const Tensor& alpha, const SelfEvolutionOptions& o) {
  const RowDivergence kl = divergence("kl").from_reference();
  const Tensor q = at::log_softmax(student, 1), r = wanted_law(teacher, labels, o.lam);
  const Tensor is_hard = hard.unsqueeze(1), mixed = proxy(q, r, alpha.to(q.scalar_type()).unsqueeze(1));
  Tensor target = o.easy_target == EasyTarget::blend ? r : at::where(is_hard, r, at::log_softmax(teacher, 1));
  if (o.mix == Mix::target) target = at::where(is_hard, mixed.detach(), target);
  return row_divergence(kl, o.mix == Mix::student ? mixed : q, target);
}

void check(const SelfEvolutionOptions& o) {
  if (o.threshold == Threshold::quantile && !fraction.contains(o.gamma))
    fail("option --gamma: {} is no quantile; with --threshold quantile it is in [0, 1]", o.gamma);
}

Tensor threshold_of(const Tensor& difficulty, const SelfEvolutionOptions& o) {
  if (difficulty.numel() == 0) return at::zeros({}, at::kDouble);
  switch (o.threshold) {
    case Threshold::mean: return o.gamma * difficulty.mean();
    case Threshold::quantile: return at::quantile(difficulty, o.gamma);
    case Threshold::fixed: break;
  }
  return at::scalar_tensor(o.gamma, at::kDouble);
}

}  // namespace

SelfEvolutionLoss self_evolution_loss(const Rows& student, const Rows& teacher, const Tensor& labels,
                                      const Tensor& mask, const SelfEvolutionOptions& o, double tokens_in_step) {
  check(o);
  const CountedTokens c = counted_tokens(student, teacher, labels, mask, Reduction::token_mean, tokens_in_step);
  const Rows ours = at_temperature(c.student, o.temperature), theirs = at_temperature(c.teacher, o.temperature);
  const auto of = [](const Tensor& all, const Tensor& rows, int64_t first) {
    return all.narrow(0, first, rows.size(0));
  };

  const Tensor difficulty =
      row_block_values(ours, theirs, [&](const Tensor& s, const Tensor& t, int64_t first) {
        return row_divergence(divergence("kl").from_reference(), s, wanted_law(t, of(c.labels, t, first), o.lam));
      }).to(at::kDouble);
  const Tensor threshold = threshold_of(difficulty, o), hard = difficulty > threshold;
  const Tensor ratio = o.ratio == Ratio::fixed ? at::full_like(difficulty, o.alpha) : -o.alpha * at::expm1(-difficulty);
  const Tensor alpha = o.mix == Mix::none ? at::zeros_like(ratio) : ratio.masked_fill(~hard, 0);

  const double scale = o.t_squared ? o.temperature * o.temperature : 1;
  const RowBlockLoss walked = row_block_loss(
      ours, theirs,
      [&](const Tensor& s, const Tensor& t, int64_t first) {
        return scale * token_loss(s, t, of(c.labels, t, first), of(hard, t, first), of(alpha, t, first), o);
      },
      c.weights);

  const auto back = [&](const Tensor& values) { return at_places(values, c.places, mask); };
  SelfEvolutionLoss result;
  result.loss = walked.loss;
  result.difficulty = back(difficulty), result.threshold = threshold;
  result.hard = back(hard), result.alpha = back(alpha);
  result.per_token = back(walked.values.to(at::kDouble));
  result.fraction_hard = hard.sum().to(at::kDouble) / std::max<int64_t>(1, hard.numel());
  return result;
}

namespace {

using O = SelfEvolutionOptions;

const Registered self_evolution{
    distillation_method<O>("self-evolution-kd")
        .summary("Self-evolution distillation: hard tokens get the label and the teacher mixed into their law")
        .formula("r = lam onehot(label) + (1 - lam) p, difficulty d = KL(r || q), hard: d > threshold\n"
                 "proxy = (1 - a) q + a r with a = alpha (1 - exp(-d)) for hard tokens, 0 for others\n"
                 "loss = T^2 mean over tokens of KL(r || proxy); mix target: KL(proxy || q) for hard tokens")
        .when("With labels one trusts beside the teacher. In the literal form (mix student) a token that the student "
              "gets very wrong has almost no gradient; mix none with easy-target teacher (the label for hard tokens "
              "only) is the safer choice. The threshold is taken within each batch of the forward pass.")
        .paper({"Self-Evolution Knowledge Distillation for LLM-based Machine Translation", "2412.15303", "COLING 2025"})
        .option("lam", &O::lam, fraction, "share of the label in the wanted law; the rest is the teacher's")
        .option("temperature", &O::temperature, positive, "divides the logits of both models")
        .option("t-squared", &O::t_squared, "multiply the loss by the temperature squared")
        .option("threshold", &O::threshold,
                {{"mean", Threshold::mean}, {"quantile", Threshold::quantile}, {"fixed", Threshold::fixed}},
                "above what difficulty a token is hard: gamma times the batch's mean, its gamma-quantile, or gamma")
        .option("gamma", &O::gamma, any_number, "see threshold")
        .option("ratio", &O::ratio, {{"difficulty", Ratio::difficulty}, {"fixed", Ratio::fixed}},
                "share of the wanted law in a hard token's proxy: alpha (1 - exp(-difficulty)), or alpha")
        .option("alpha", &O::alpha, from_to_below(0, 1), "largest share of the wanted law in the proxy")
        .option("mix", &O::mix, {{"student", Mix::student}, {"target", Mix::target}, {"none", Mix::none}},
                "the proxy stands for the student, or is the target, or is left out")
        .option("easy-target", &O::easy_target, {{"blend", EasyTarget::blend}, {"teacher", EasyTarget::teacher}},
                "what tokens that are not hard learn: the wanted law, or the teacher's alone")
        .validate(check)
        .loss([](const DistillationBatch& b, const O& o) {
          const SelfEvolutionLoss l = self_evolution_loss(b.student, b.teacher, b.labels, b.mask, o, b.tokens_in_step);
          const auto mean = [&](const at::Tensor& values) { return values.masked_select(b.mask); };
          return DistillationLoss{.value = l.loss,
                                  .parts = {{"difficulty", mean(l.difficulty)},
                                            {"threshold", l.threshold.unsqueeze(0)},
                                            {"alpha", mean(l.alpha)},
                                            {"fraction_hard", l.fraction_hard.unsqueeze(0)}}};
        })};

}  // namespace
}  // namespace kullback
