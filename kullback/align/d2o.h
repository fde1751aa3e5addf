#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// Distributional Dispreference Optimization: the law of the policy's own samples against one labelled bad response. Duan et
/// al. 2024, arXiv 2403.03419.
struct D2oOptions {
  double beta = 0.1;     ///< weight of the self samples, > 0
  double alpha = 0.1;    ///< weight of the negative, > 0
  int64_t samples = 11;  ///< self samples a prompt, >= 1
};

/// `batch.chosen`: the self samples, rows of pair `chosen_pair`, against the more harmful reference; `batch.rejected`: the
/// negatives, against the more helpful one. Parts: `logits`, `self_rewards`, `negative_rewards`, `gradient_weight`,
/// `samples_used`, `instance_dpo_losses` [B].
PreferenceLoss d2o_loss(const PreferenceBatch& batch, const D2oOptions& options);

}  // namespace kullback
