#include "kullback/align/cpl.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Variant = CplOptions::Variant;
using Imitate = CplOptions::Imitate;

Tensor cpl_pair_loss(const Tensor& winner, const Tensor& loser, double bias) {
  return logistic_loss(winner - bias * loser);
}

namespace {

/// Behaviour cloning: mean -log-probability a token of both segments, or of those not beaten. A step's batches add up.
Tensor cloning_loss(const CplComparison& s, const PreferenceBatch& batch, const CplOptions& o) {
  const bool all = o.bc_data == Imitate::all;
  const Tensor first = s.first.mask & ((s.label <= 0.5) | all).unsqueeze(-1),
               second = s.second.mask & ((s.label >= 0.5) | all).unsqueeze(-1);
  const Tensor sum = sequence_sum(s.first.logps, first).sum() + sequence_sum(s.second.logps, second).sum();
  const double in_step = batch.chosen_tokens_in_step + (all ? batch.rejected_tokens_in_step : 0);
  return -sum / (in_step > 0 ? in_step : std::max(1.0, (first.sum() + second.sum()).item<double>()));
}

}  // namespace

Tensor cpl_advantage(const Side& segment, const CplOptions& o) {
  const Tensor step = at::arange(segment.logps.size(-1), segment.logps.options());  // from the segment's beginning
  Side side = segment;
  if (o.variant == Variant::cpl) side.reference_logps = Tensor();
  return o.alpha * score(side, at::pow(o.discount, step)).log_ratio();
}

PreferenceLoss cpl_loss(const CplComparison& s, const PreferenceBatch& batch, const CplOptions& o) {
  const Tensor first = cpl_advantage(s.first, o), second = cpl_advantage(s.second, o);
  const Tensor y = s.label.to(first.scalar_type());
  const Tensor losses =
      y * cpl_pair_loss(second, first, o.contrastive_bias) + (1 - y) * cpl_pair_loss(first, second, o.contrastive_bias);
  PreferenceLoss loss = pairwise_loss(batch, losses, second, first, second - first);
  const Tensor cloning = cloning_loss(s, batch, o);
  loss.parts.insert({{"advantage_1", first.detach()},
                     {"advantage_2", second.detach()},
                     {"cpl_loss", loss.value.detach()},
                     {"bc_loss", cloning.detach()},
                     {"accuracy", ((second > first) == (y.round() > 0.5)).to(at::kDouble).mean()}});
  if (o.bc_coeff > 0) loss.value = loss.value + o.bc_coeff * cloning;
  return loss;
}

PreferenceLoss cpl_loss(const PreferenceBatch& batch, const CplOptions& o) {
  const Tensor label = at::ones({batch.chosen.logps.size(0)}, batch.chosen.logps.options());
  return cpl_loss({batch.rejected, batch.chosen, label}, batch, o);
}

namespace {

const Registered cpl{
    preference_method<CplOptions>("cpl")
        .summary("Contrastive Preference Learning: prefers the segment with less regret under a maximum-entropy policy")
        .formula(
            "loss = mean over pairs of -log sigmoid(A_w - bias * A_l) + bc_coeff * BC\n"
            "A    = alpha * sum over tokens t of discount^t log policy(token t); cpl-kl: less log reference(token t)\n"
            "BC   = mean -log policy(token), of all responses or of the chosen ones\n"
            "With bias 1 and discount 1, cpl-kl is DPO with beta = alpha, and cpl is DPO with a uniform reference.")
        .when("When preferences say which course of action has less regret, rather than more reward, and no reference "
              "is to hold the policy. A bias below 1 keeps probability on what the data holds, at the price of "
              "consistency. The authors clone behaviour first: begin from a model that was tuned on the data, which is "
              "cpl-kl's reference too.")
        .paper({"Contrastive Preference Learning: Learning from Human Feedback without RL", "2310.13639", "ICLR 2024"})
        .option("variant", &CplOptions::variant, {{"cpl", Variant::cpl}, {"cpl-kl", Variant::cpl_kl}},
                "log-probabilities, or log-ratios to the reference")
        .option("alpha", &CplOptions::alpha, positive, "temperature of the policy whose regret is compared",
                "authors' configuration")
        .option("contrastive-bias", &CplOptions::contrastive_bias,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true}, "weight of the losing side",
                "authors' configuration")
        .option("discount", &CplOptions::discount, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "of each later token", "authors' code")
        .option("bc-coeff", &CplOptions::bc_coeff, non_negative, "weight of behaviour cloning")
        .option("bc-data", &CplOptions::bc_data, {{"all", Imitate::all}, {"pos", Imitate::preferred}},
                "what is cloned: all responses, or those preferred")
        .needs([](const CplOptions& o) { return Needs{.reference_logps = o.variant == Variant::cpl_kl}; })
        .loss([](const PreferenceBatch& batch, const CplOptions& o) { return cpl_loss(batch, o); })};

}  // namespace
}  // namespace kullback
