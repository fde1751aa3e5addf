#pragma once

#include <functional>
#include <optional>

#include "kullback/base/options.h"
#include "kullback/base/registry.h"
#include "kullback/world/preferences.h"

namespace kullback {

/// How a policy of the world is trained: full batches, AdamW without decay, a cosine course of the rate to 0.
struct WorldTraining {
  int64_t steps = 1500;
  double learning_rate = 0.05;
  int64_t pairs = 0;       ///< 0: the exact expectation over all pairs
  double label_noise = 0;  ///< of sampled pairs
  int64_t seed = 0;        ///< of sampled pairs
};
const Options<WorldTraining>& world_training_options();

/// The pairs that the options ask for.
WorldPairs pairs_for(const World& world, const WorldTraining& training);

/// Trains `policy` (without one: fresh_policy) by a preference method's own recipe, the one that trains real models; gives
/// back its final rows [C,P,V] of log-probabilities. `watch(step, loss)` is called after every step. Error where the loss
/// is not finite.
at::Tensor train_in_world(const World& world, const Method& method, const void* options, const WorldPairs& pairs,
                          const WorldTraining& training, const std::function<void(int64_t, double)>& watch = {},
                          std::optional<Policy> policy = {});

/// The recipe's loss on pairs at a policy, without training: differentiable.
PreferenceLoss loss_in_world(const World& world, const Method& method, const void* options, const WorldPairs& pairs,
                             const Policy& policy, int64_t visit = 0);

}  // namespace kullback
