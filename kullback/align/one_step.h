#pragma once

#include <functional>

#include "kullback/train/check.h"
#include "kullback/world/law.h"
#include "kullback/world/training.h"
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

/// Largest gradient of a method's loss on pairs at a tabular policy, over the numbers of its table. rows: [C,P,V]
double largest_gradient(const World& world, const std::string& method, const void* options, const WorldPairs& pairs,
                        const at::Tensor& rows);

/// What is seen of a tabular policy while a method trains it, by its KL(policy || initial reference).
struct Course {
  std::vector<double> kl, reward, length, entropy;  ///< one a step
  /// The value, linearly between steps, where the KL first reaches a level; NaN if it never does.
  double at(double level, const std::vector<double>& values) const;
};
Course course(const World& world, const std::string& method, const void* options, const WorldPairs& pairs,
              const WorldTraining& training);

/// A world of so many one-token responses to each of so many prompts; reference logits and rewards are normal.
World one_step_world(int64_t prompts, int64_t responses, uint64_t seed, double reward_deviation = 1);

}  // namespace kullback
