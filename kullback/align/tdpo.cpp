#include "kullback/align/tdpo.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Variant = TdpoOptions::Variant;

PreferenceLoss tdpo_loss(const TdpoSequences& s, const PreferenceBatch& batch, const TdpoOptions& o) {
  const Tensor drift = o.variant == Variant::tdpo1 ? s.rejected_kl - s.chosen_kl
                                                   : o.alpha * (s.rejected_kl - s.chosen_kl.detach());  // [B]
  const Tensor z = o.beta * (s.chosen_margin - s.rejected_margin - drift);
  PreferenceLoss loss = pairwise_loss(batch, logistic_loss(z), o.beta * (s.chosen_margin + s.chosen_kl),
                                      o.beta * (s.rejected_margin + s.rejected_kl), z);
  loss.parts["kl_margin"] = (s.chosen_kl - s.rejected_kl).detach();
  return loss;
}

PreferenceLoss tdpo_loss(const PreferenceBatch& batch, const TdpoOptions& o) {
  const Score w = score(batch.chosen), l = score(batch.rejected);
  const auto kl = [](const Side& side) { return sequence_sum(side.divergences.at(0), side.mask); };
  const TdpoSequences s{w.log_ratio(), l.log_ratio(), kl(batch.chosen), kl(batch.rejected)};
  PreferenceLoss loss = tdpo_loss(s, batch, o);
  loss.parts.insert({{"chosen_logps_margin", s.chosen_margin.detach()},
                     {"rejected_logps_margin", s.rejected_margin.detach()},
                     {"chosen_seq_kl", s.chosen_kl.detach()},
                     {"rejected_seq_kl", s.rejected_kl.detach()},
                     {"policy_chosen_sum", w.policy.detach()},
                     {"policy_rejected_sum", l.policy.detach()}});
  return loss;
}

namespace {

const Registered tdpo{
    preference_method<TdpoOptions>("tdpo")
        .summary("DPO with a per-token KL term, which balances the drift on chosen and on rejected responses")
        .formula(
            "loss  = mean over pairs of -log sigmoid(beta * (s_w - s_l - delta))\n"
            "s     = log policy(y | prompt) - log reference(y | prompt), of the chosen (w) and rejected (l) response\n"
            "k     = sum over the response's tokens of KL(reference || policy) of the next token\n"
            "tdpo1: delta = k_l - k_w\n"
            "tdpo2: delta = alpha * (k_l - stop_gradient(k_w))")
        .when("When DPO drifts far from the reference for what it gains. It needs the reference's whole next-token "
              "distributions, so stored log-probabilities do not do. The authors advise tdpo1 at low learning rates, "
              "tdpo2 at higher ones. Its logged rewards contain the KL and are not on DPO's scale.")
        .paper({"Token-level Direct Preference Optimization", "2404.11999", "ICML 2024"})
        .option("variant", &TdpoOptions::variant, {{"tdpo1", Variant::tdpo1}, {"tdpo2", Variant::tdpo2}},
                "whether the chosen response's KL carries a gradient and no weight, or a weight and no gradient",
                "authors' function")
        .option("beta", &TdpoOptions::beta, positive, "strength of the pull to the reference", "authors' configuration")
        .option("alpha", &TdpoOptions::alpha, non_negative, "weight of the KL difference; tdpo2 only, where 0 is DPO",
                "authors' configuration")
        .needs([](const TdpoOptions&) {
          return Needs{.reference_logps = true, .divergences = {divergence("kl").from_reference()}};
        })
        .loss([](const PreferenceBatch& batch, const TdpoOptions& o) { return tdpo_loss(batch, o); })};

}  // namespace
}  // namespace kullback
