#pragma once

#include <functional>

#include "kullback/base/random.h"
#include "kullback/train/check.h"
#include "kullback/world/world.h"

namespace kullback {

/// Every ordered pair of one-token responses with its probability: both from the reference, labels from Bradley-Terry.
/// [K] log-probabilities of policy and reference, [K] rewards.
PreferenceBatch population_batch(const at::Tensor& policy_logps, const at::Tensor& reference_logps,
                                 const at::Tensor& rewards);

/// The same as the golden fixtures count it: they sum pi(i) pi(j) sigmoid(r_i - r_j) loss(i over j) over all i and j, a law
/// whose mass is one half.
at::Tensor fixture_population_loss(const std::function<PreferenceLoss(const PreferenceBatch&)>& loss,
                                   const at::Tensor& policy_logps, const at::Tensor& reference_logps,
                                   const at::Tensor& rewards);

/// Standard normal numbers, float64.
at::Tensor normals(at::IntArrayRef sizes, RandomStream& stream);

/// A world of so many one-token responses to each of so many prompts; reference logits and rewards are normal.
World one_step_world(int64_t prompts, int64_t responses, uint64_t seed, double reward_deviation = 1);

}  // namespace kullback
