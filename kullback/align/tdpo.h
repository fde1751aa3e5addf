#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// Token-level DPO: DPO's margin less the difference of the two responses' summed KL(reference || policy). Zeng et al. 2024,
/// arXiv 2404.11999.
struct TdpoOptions {
  enum class Variant { tdpo1, tdpo2 };
  Variant variant = Variant::tdpo2;
  double beta = 0.1;   ///< strength of the constraint, > 0
  double alpha = 0.5;  ///< weight of the KL difference, >= 0; tdpo2 only
};

/// What the loss is made of: of each response, each [B].
struct TdpoSequences {
  at::Tensor chosen_margin, rejected_margin;  ///< summed log policy - log reference
  at::Tensor chosen_kl, rejected_kl;          ///< summed KL(reference || policy) of the rows
};
/// Parts: `logits`, `kl_margin` [B].
PreferenceLoss tdpo_loss(const TdpoSequences& sums, const PreferenceBatch& batch, const TdpoOptions& options);
/// Parts besides: both sides' margins, KLs and summed log-probabilities.
PreferenceLoss tdpo_loss(const PreferenceBatch& batch, const TdpoOptions& options);

}  // namespace kullback
