#include "kullback/align/sampo.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Mode = SampoOptions::Mode;
using LossType = SampoOptions::LossType;

namespace {

/// A response's sum of log-ratios over `count` of its tokens. [B]
Tensor sampled_log_ratio(const Side& side, const std::string& name, const Tensor& count, const SampoOptions& o,
                         std::map<std::string, Tensor>& kept) {
  const Tensor of_policy = kept[name + "_kept"] = smallest(side.uniforms.at(0), side.mask, count);
  Tensor of_reference = of_policy;
  if (o.mode == Mode::independent) {
    of_reference = kept["reference_" + name + "_kept"] = smallest(side.uniforms.at(1), side.mask, count);
  }
  return sequence_sum(side.logps, of_policy) - sequence_sum(side.reference_logps, of_reference);
}

}  // namespace

PreferenceLoss sampo_loss(const PreferenceBatch& batch, const SampoOptions& o) {
  const Side chosen = without_forbidden_tokens(batch.chosen), rejected = without_forbidden_tokens(batch.rejected);
  const Score w = score(chosen), l = score(rejected);
  const Tensor count = at::minimum(w.length, l.length);  // [B]
  std::map<std::string, Tensor> kept;
  Tensor ratio_w, ratio_l;
  if (o.mode == Mode::average) {  // both as if they had the mean length; nothing where either is empty
    const Tensor length = (w.length + l.length) / 2 * (count > 0).to(w.policy.scalar_type());
    ratio_w = w.mean_log_ratio() * length, ratio_l = l.mean_log_ratio() * length;
  } else {
    ratio_w = sampled_log_ratio(chosen, "chosen", count, o, kept);
    ratio_l = sampled_log_ratio(rejected, "rejected", count, o, kept);
  }
  const Tensor z = o.beta * (ratio_w - ratio_l);
  Tensor losses = o.loss_type == LossType::sigmoid ? logistic_loss(z)
                  : o.loss_type == LossType::hinge ? hinge_loss(z)
                                                   : ipo_loss((ratio_w - ratio_l) / count.clamp_min(1), o.beta);
  if (o.sft_lambda > 0) losses = losses - o.sft_lambda * w.policy / w.length.clamp_min(1);
  PreferenceLoss loss = pairwise_loss(batch, losses, o.beta * ratio_w, o.beta * ratio_l, z);
  loss.parts["kept_length"] = count;
  loss.parts.merge(kept);
  return loss;
}

namespace {

const Registered sampo{
    preference_method<SampoOptions>("sampo")
        .summary("DPO on equally many tokens of both responses, drawn at random, so that length is no argument")
        .formula("loss = mean over pairs of -log sigmoid(beta * (s_w - s_l))\n"
                 "s_w  = sum over K_w of log policy(token) - log reference(token); s_l likewise over K_l\n"
                 "K_w, K_l: min(n_w, n_l) tokens of each response, drawn without replacement anew at every visit")
        .when("When DPO makes answers longer for no reason. Margins vary with the draw, so judge by held-out figures "
              "of whole responses. `iterations` 3 with a reference renewed between them was the authors' best.")
        .paper({"Eliminating Biased Length Reliance of Direct Preference Optimization via Down-Sampled KL Divergence",
                "2406.10957", "EMNLP 2024"})
        .option("beta", &SampoOptions::beta, positive, "strength of the pull to the reference", "authors' scripts")
        .option("mode", &SampoOptions::mode,
                {{"shared", Mode::shared}, {"independent", Mode::independent}, {"average", Mode::average}},
                "policy and reference keep the same tokens (the paper), draw each their own (the released code), or "
                "both sides take their mean times the mean length")
        .option("loss-type", &SampoOptions::loss_type,
                {{"sigmoid", LossType::sigmoid}, {"hinge", LossType::hinge}, {"ipo", LossType::ipo}},
                "the loss of a pair")
        .option("sft-lambda", &SampoOptions::sft_lambda, non_negative,
                "weight of the chosen response's supervised loss a token, over the whole response")
        .option("iterations", &SampoOptions::iterations, at_least(1),
                "the run in so many equal parts; between them the policy becomes the reference")
        .needs([](const SampoOptions& o) {
          Needs needs{.reference_logps = true,
                      .uniforms = o.mode == Mode::shared        ? 1
                                  : o.mode == Mode::independent ? 2
                                                                : 0};
          if (o.iterations > 1) needs.moving_reference = MovingReference{.parts = o.iterations};
          return needs;
        })
        .loss(sampo_loss)};

}  // namespace
}  // namespace kullback
