#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// DPO whose reward pays for each token of a response. Park et al. 2024, arXiv 2403.19159.
struct RdpoOptions {
  double beta = 0.1;    ///< > 0
  double alpha = 0.01;  ///< price of a token, >= 0; 0 is DPO
};
/// Parts: `logits` [B].
PreferenceLoss rdpo_loss(const PreferenceBatch& batch, const RdpoOptions& options);

}  // namespace kullback
