#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// SALSA: PPO whose KL penalty is taken to the weight average of supervised models. Chegini et al. 2024, arXiv 2411.01798;
/// the step is that of Schulman et al. 2017, arXiv 1707.06347, with the conventions of TRL.
struct SalsaOptions {
  enum class Estimator { k1, k3 };
  enum class PolicyInit { model, soup };
  double alpha = 0.5;     ///< weight of the first model in the average, in [0, 1]
  double kl_coef = 0.05;  ///< >= 0
  Estimator kl_estimator = Estimator::k1;
  double gamma = 1, lam = 0.95;  ///< discount, and decay of the advantage estimator, in [0, 1]
  double cliprange = 0.2, cliprange_value = 0.2, vf_coef = 0.1;  ///< > 0
  bool whiten_rewards = false, whiten_advantages = true;
  std::string reward = {};                ///< the name of one (rewards/reward.h)
  std::vector<std::string> soup = {};     ///< the other supervised models
  std::vector<double> soup_weights = {};  ///< of the first model and those; empty: alpha and 1 - alpha, or equal
  PolicyInit policy_init = PolicyInit::model;
  int64_t num_rollouts = 0;  ///< responses drawn at once; 0: the step's
  int64_t num_ppo_epochs = 4;
  int64_t response_tokens = 64;
  double value_lr = 1e-3;  ///< peak learning rate of the value head
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
