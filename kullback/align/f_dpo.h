#pragma once

#include <optional>

#include "kullback/divergence/divergence.h"
#include "kullback/train/preference.h"

namespace kullback {

/// DPO under other f-divergences than reverse KL. Wang et al. 2023, arXiv 2309.16240.
struct FdpoOptions {
  enum class Constraint { reverse_kl, forward_kl, jsd, alpha };
  double beta = 0.1;                               ///< > 0
  Constraint divergence = Constraint::reverse_kl;  ///< of policy and reference
  double alpha = 0.5;                              ///< of the alpha-divergence, in (0, 1)
  std::optional<double> exp_clamp = {};            ///< largest exponent; none: 80 in float32, unbounded in float64
};

/// Parts: `logits`, `chosen_logratio`, `rejected_logratio` [B], `exp_clamped` [B]: 1 where a side has no gradient left.
PreferenceLoss fdpo_loss(const PreferenceBatch& batch, const FdpoOptions& options);

/// The divergence that holds the policy, and its factor: the paper's Jensen-Shannon generator is twice the usual one.
struct ScaledDivergence {
  Divergence divergence;
  double factor = 1;
};
ScaledDivergence constraint(const FdpoOptions& options);

/// The law that maximises E[reward] - beta D_f(law || reference): reference(y) g((reward(y) - lambda) / beta) with g the
/// inverse of f' and lambda such that it sums to one. [K] log-probabilities, [K] rewards -> [K] log-probabilities.
at::Tensor fdpo_optimum(const at::Tensor& reference_logps, const at::Tensor& rewards, const FdpoOptions& options);

}  // namespace kullback
