#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// SALSA: PPO whose KL penalty is taken to the weight average of supervised models. Chegini et al. 2024, arXiv 2411.01798;
/// the step is that of Schulman et al. 2017, arXiv 1707.06347, with the conventions of TRL.
struct SalsaOptions {
  enum class Estimator { k1, k3 };
  double alpha = 0.5;     ///< weight of the first model in the average, in [0, 1]
  double kl_coef = 0.05;  ///< >= 0
  Estimator kl_estimator = Estimator::k1;
  double gamma = 1, lam = 0.95;  ///< discount, and decay of the advantage estimator, in [0, 1]
  double cliprange = 0.2, cliprange_value = 0.2, vf_coef = 0.1;  ///< > 0
  bool whiten_rewards = false, whiten_advantages = true;
};

/// What was sampled, all constant: [B,T] but for scores [B].
struct PpoSamples {
  at::Tensor old_logps, reference_logps, old_values, scores, mask;
};

/// Rewards, advantages and returns of samples: computed once, before the passes over them.
struct PpoTargets {
  at::Tensor per_token_kl, rewards, raw_advantages, advantages, returns;  ///< [B,T], 0 where masked
};
PpoTargets ppo_targets(const PpoSamples& samples, const SalsaOptions& options);

/// One pass: the clipped policy and value losses. policy_logps, values: [B,T], differentiable.
struct PpoLoss {
  at::Tensor loss, policy_loss, value_loss;  ///< scalars
  at::Tensor clip_fraction, approximate_kl;  ///< scalars
};
PpoLoss ppo_loss(const PpoSamples& samples, const PpoTargets& targets, const at::Tensor& policy_logps,
                 const at::Tensor& values, const SalsaOptions& options);

}  // namespace kullback
