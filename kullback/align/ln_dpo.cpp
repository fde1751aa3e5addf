#include "kullback/align/ln_dpo.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/sampled_kl.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Variant = LnDpoOptions::Variant;
using Link = LnDpoOptions::Link;

PreferenceLoss ln_dpo_loss(const PreferenceBatch& batch, const LnDpoOptions& o) {
  const auto reward = [&](Side side, Tensor& length) {  // [B]
    if (o.variant == Variant::simpo) side.reference_logps = Tensor();
    const Score s = score(side);
    length = s.length;
    return o.strength() * (o.variant == Variant::dpo ? s.log_ratio() : s.mean_log_ratio());
  };
  Tensor length_w, length_l;
  const Tensor w = reward(batch.chosen, length_w), l = reward(batch.rejected, length_l);
  const Tensor z = w - l - (o.variant == Variant::simpo ? o.strength() * o.gamma_beta_ratio : 0);
  const Tensor losses = o.link == Link::hinge ? hinge_loss(z) : logistic_loss(z, o.label_smoothing);
  PreferenceLoss loss = pairwise_loss(batch, losses, w, l, z);
  loss.parts.insert({{"margin", z.detach()}, {"chosen_length", length_w}, {"rejected_length", length_l}});
  if (o.sft_weight > 0) {
    const Tensor supervised = supervised_loss(batch);
    loss.value = loss.value + o.sft_weight * supervised;
    loss.parts["sft_loss"] = supervised.detach();
  }
  return loss;
}

SampleAnalysis analyse_samples(const Tensor& logps, const Tensor& reference_logps, const Tensor& mask) {
  const Tensor u = masked(logps - reference_logps, mask), length = token_counts(mask, u);
  return {.kl_sequence = u.sum(-1).mean(),
          .kl_token = u.sum() / length.sum().clamp_min(1),
          .kl_k3_sequence = k3_estimate(u).sum(-1).mean(),
          .length_mean = length.mean(),
          .length_std = length.std(/*unbiased=*/false),
          .length_max = length.max(),
          .empty = (length == 0).sum()};
}

namespace {

void validate(const LnDpoOptions& o) {
  if (o.sft_weight > 0 && o.variant != Variant::simpo) fail("option --sft-weight: belongs to --variant simpo");
  if (o.label_smoothing > 0 && o.link == Link::hinge) fail("option --label-smoothing: --link hinge knows none");
}

const Registered ln_dpo{
    preference_method<LnDpoOptions>("ln-dpo")
        .summary("DPO on log-ratios a token, which does not reward length; and SimPO, which needs no reference")
        .formula("loss    = mean over pairs of -log sigmoid(beta * u)\n"
                 "ln-dpo: u = s_w / n_w - s_l / n_l, s the summed log-ratio and n the number of tokens of a response\n"
                 "dpo:    u = s_w - s_l\n"
                 "simpo:  u = log policy(chosen) / n_w - log policy(rejected) / n_l - gamma_beta_ratio")
        .when("When lengths of the two responses differ, or a sweep over hyper-parameters is not affordable: the "
              "study finds ln-dpo and simpo steadier than DPO away from their best settings. beta has to be about the "
              "mean length times DPO's.")
        .paper({"A Practical Analysis of Human Alignment with *PO", "2407.15229", "NAACL Findings 2025"})
        .paper({"SimPO: Simple Preference Optimization with a Reference-Free Reward", "2405.14734", "NeurIPS 2024"})
        .option("variant", &LnDpoOptions::variant,
                {{"ln-dpo", Variant::ln_dpo}, {"dpo", Variant::dpo}, {"simpo", Variant::simpo}},
                "mean log-ratios, summed log-ratios, or mean log-probabilities without a reference")
        .option("beta", &LnDpoOptions::beta, positive, "scale of the margin; off: 2, for dpo 0.1", "SimPO")
        .option("gamma-beta-ratio", &LnDpoOptions::gamma_beta_ratio, fraction, "simpo: margin asked for, over beta",
                "SimPO")
        .option("label-smoothing", &LnDpoOptions::label_smoothing, from_to_below(0, 0.5),
                "assumed rate of flipped labels")
        .option("link", &LnDpoOptions::link, {{"sigmoid", Link::sigmoid}, {"hinge", Link::hinge}}, "the loss of a pair")
        .option("sft-weight", &LnDpoOptions::sft_weight, non_negative,
                "simpo: weight of the chosen responses' supervised loss a token")
        .needs([](const LnDpoOptions& o) { return Needs{.reference_logps = o.variant != Variant::simpo}; })
        .validate(validate)
        .loss(ln_dpo_loss)};

}  // namespace
}  // namespace kullback
