#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// DPO with a weight on the policy's entropy. Omura et al. 2024, arXiv 2411.07595.
struct HdpoOptions {
  double alpha = 0.95;  ///< weight of the entropy, > 0; 1 is DPO, less is sharper
  double beta = 0.1;    ///< > 0
};
/// Parts: `logits` [B].
PreferenceLoss hdpo_loss(const PreferenceBatch& batch, const HdpoOptions& options);

}  // namespace kullback
