#include "kullback/align/tr_dpo.h"

#include <ATen/ATen.h>

#include "kullback/align/kto.h"
#include "kullback/train/pairwise.h"

namespace kullback {

using at::Tensor;
using Mode = TrDpoOptions::Mode;
using LossType = TrDpoOptions::LossType;

MovingReference TrDpoOptions::moving_reference() const {
  return {.weight = mode == Mode::soft ? alpha : 1, .every = sync_steps.value_or(mode == Mode::soft ? 1 : 512)};
}

PreferenceLoss tr_dpo_loss(const PreferenceBatch& batch, const TrDpoOptions& o) {
  const Tensor w = score(batch.chosen).log_ratio(), l = score(batch.rejected).log_ratio();  // [B]
  const auto loss_of = [&](const Tensor& losses) {
    return pairwise_loss(batch, losses, o.beta * w, o.beta * l, o.beta * (w - l));
  };
  if (o.loss_type == LossType::sigmoid) return loss_of(logistic_loss(o.beta * (w - l)));
  if (o.loss_type == LossType::ipo) return loss_of(ipo_loss(w - l, o.beta));
  // Each side is valued against the other side's mean log-ratio, an estimate of its KL.
  const auto point = [&](const Tensor& ratios) {
    const Tensor mean = ratios.mean().clamp_min(0);
    return o.kto_detach_kl ? mean.detach() : mean;
  };
  const Tensor kl_w = point(w), kl_l = point(l);
  const Tensor good = kto_value_loss(o.beta * (w - kl_l)), bad = kto_value_loss(o.beta * (kl_w - l));
  PreferenceLoss loss = loss_of((good + bad) / 2);
  loss.parts.insert({{"chosen_kl", kl_w.detach()},
                     {"rejected_kl", kl_l.detach()},
                     {"response_losses", at::cat({good, bad}).detach()}});
  return loss;
}

namespace {

const Registered tr_dpo{
    preference_method<TrDpoOptions>("tr-dpo")
        .summary("DPO whose reference follows the policy, so that it may go further without over-optimising")
        .formula("loss = mean over pairs of -log sigmoid(beta * (s_w - s_l)), s the log-ratio to the reference of that "
                 "step\n"
                 "after every sync-steps-th step of the optimiser:\n"
                 "soft: reference <- alpha * policy + (1 - alpha) * reference, weight by weight\n"
                 "hard: reference <- policy")
        .when("When DPO stops gaining before its KL is used up, or starts losing. Say mode and sync-steps: alpha 1 at "
              "every step trains nothing. Rewards drop at each update. A second copy of the weights is held; with "
              "adapters only hard updates are defined.")
        .paper({"Learn Your Reference Model for Real Good Alignment", "2404.09656", "ICLR 2025"})
        .option("mode", &TrDpoOptions::mode, {{"soft", Mode::soft}, {"hard", Mode::hard}},
                "mix the policy into the reference, or copy it")
        .option("alpha", &TrDpoOptions::alpha, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "soft: weight of the policy", "paper")
        .option("sync-steps", &TrDpoOptions::sync_steps, at_least(1),
                "steps of the optimiser between updates; off: 1 if soft, 512 if hard", "authors' library")
        .option("beta", &TrDpoOptions::beta, positive, "strength of the pull to the reference", "paper")
        .option("loss-type", &TrDpoOptions::loss_type,
                {{"sigmoid", LossType::sigmoid}, {"ipo", LossType::ipo}, {"kto", LossType::kto}}, "the loss of a pair")
        .option("kto-detach-kl", &TrDpoOptions::kto_detach_kl,
                "kto: no gradient through the reference points, as in KTO's paper", "authors' library")
        .needs([](const TrDpoOptions& o) {
          return Needs{.reference_logps = true, .moving_reference = o.moving_reference()};
        })
        .loss(tr_dpo_loss)};

}  // namespace
}  // namespace kullback
