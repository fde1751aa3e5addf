#pragma once

#include <optional>

#include "kullback/train/recipe.h"

namespace kullback {

/// DPO, IPO or KTO on pairs whose reference follows the policy. Gorbatovski et al. 2024, arXiv 2404.09656.
struct TrDpoOptions {
  enum class Mode { soft, hard };
  enum class LossType { sigmoid, ipo, kto };
  Mode mode = Mode::soft;
  double alpha = 0.6;                      ///< soft: weight of the policy, in (0, 1]
  std::optional<int64_t> sync_steps = {};  ///< steps of the optimiser between updates; none: soft 1, hard 512
  double beta = 0.05;                      ///< > 0
  LossType loss_type = LossType::sigmoid;
  bool kto_detach_kl = false;  ///< kto: whether the reference points carry no gradient

  MovingReference moving_reference() const;
};

/// Parts: `logits` [B]; kto: `chosen_kl`, `rejected_kl` (scalars), `response_losses` [2B].
PreferenceLoss tr_dpo_loss(const PreferenceBatch& batch, const TrDpoOptions& options);

}  // namespace kullback
