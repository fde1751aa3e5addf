#pragma once

#include "kullback/train/preference.h"

namespace kullback {

/// Contrastive Preference Learning: a policy from preferences by regret, without a reward or reinforcement learning. Hejna
/// et al. 2023, arXiv 2310.13639.
struct CplOptions {
  enum class Variant { cpl, cpl_kl };
  enum class Imitate { all, preferred };
  Variant variant = Variant::cpl;  ///< cpl-kl measures log-probabilities against the reference
  double alpha = 0.1;              ///< temperature, > 0
  double contrastive_bias = 0.5;   ///< weight of the losing side, in (0, 1]
  double discount = 1;             ///< of later tokens, in (0, 1]
  double bc_coeff = 0;             ///< weight of behaviour cloning, >= 0
  Imitate bc_data = Imitate::all;  ///< what is cloned
};

/// Discounted sum of log-probabilities, times alpha. [B]
at::Tensor cpl_advantage(const Side& segment, const CplOptions& options);

/// -log sigmoid of how far the winner leads the loser, whose advantage counts `bias` times. Elementwise.
at::Tensor cpl_pair_loss(const at::Tensor& winner, const at::Tensor& loser, double bias);

/// Two segments of each of B comparisons.
struct CplComparison {
  Side first, second;
  at::Tensor label;  ///< [B]: 1 where the second is preferred, 0 the first, 1/2 neither
};
/// Parts: `advantage_1`, `advantage_2` [B], `cpl_loss`, `bc_loss`, `accuracy` (scalars). Rewards: of the second, then first.
/// `batch` says what means are taken over.
PreferenceLoss cpl_loss(const CplComparison& segments, const PreferenceBatch& batch, const CplOptions& options);
PreferenceLoss cpl_loss(const PreferenceBatch& batch, const CplOptions& options);

}  // namespace kullback
