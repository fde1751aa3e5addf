#pragma once

#include <optional>

#include "kullback/train/preference.h"

namespace kullback {

/// DPO on log-ratios a token, beside DPO itself and the reference-free SimPO (arXiv 2405.14734). Ahrabian et al. 2024, arXiv
/// 2407.15229.
struct LnDpoOptions {
  enum class Variant { ln_dpo, dpo, simpo };
  enum class Link { sigmoid, hinge };
  Variant variant = Variant::ln_dpo;
  std::optional<double> beta = {};  ///< > 0; none: 2, for dpo 0.1
  double gamma_beta_ratio = 0.25;   ///< simpo's margin over beta, in [0, 1]
  double label_smoothing = 0;       ///< in [0, 0.5)
  Link link = Link::sigmoid;
  double sft_weight = 0;  ///< of the chosen responses' supervised loss, >= 0; simpo only

  double strength() const { return beta.value_or(variant == Variant::dpo ? 0.1 : 2); }
};

/// Parts: `logits`, `margin`, `chosen_length`, `rejected_length` [B]; `sft_loss` where it counts.
PreferenceLoss ln_dpo_loss(const PreferenceBatch& batch, const LnDpoOptions& options);

/// What a run's own samples say of it.
struct SampleAnalysis {
  at::Tensor kl_sequence, kl_token;  ///< KL(policy || reference) from the samples: a response, a token
  at::Tensor kl_k3_sequence;         ///< the same a response by the k3 estimator, summed over tokens
  at::Tensor length_mean, length_std, length_max, empty;  ///< tokens; deviation of the population; empty responses
};
/// logps, reference_logps, mask: [B,T] of responses drawn from the policy.
SampleAnalysis analyse_samples(const at::Tensor& logps, const at::Tensor& reference_logps, const at::Tensor& mask);

}  // namespace kullback
