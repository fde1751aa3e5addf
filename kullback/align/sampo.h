#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// DPO on as many tokens of the longer response as the shorter one has. Lu et al. 2024, arXiv 2406.10957.
struct SampoOptions {
  enum class Mode { shared, independent, average };
  enum class LossType { sigmoid, hinge, ipo };
  double beta = 0.1;         ///< > 0
  Mode mode = Mode::shared;  ///< whether policy and reference draw the same tokens, their own, or take means
  LossType loss_type = LossType::sigmoid;
  double sft_lambda = 0;   ///< weight of the chosen response's supervised loss a token, >= 0
  int64_t iterations = 1;  ///< the reference becomes the policy between them
};

/// Parts: `logits`, `kept_length` [B] and, where tokens are drawn, the places `chosen_kept`, `rejected_kept` [B,T]
/// (independent: `reference_chosen_kept`, `reference_rejected_kept` too).
PreferenceLoss sampo_loss(const PreferenceBatch& batch, const SampoOptions& options);

}  // namespace kullback
