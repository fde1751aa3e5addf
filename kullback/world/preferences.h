#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kullback/train/recipe.h"
#include "kullback/world/policy.h"
#include "kullback/world/world.h"

namespace kullback {

/// Preference pairs of a world: both responses come from the reference, labels from Bradley-Terry on the proxy reward.
struct WorldPairs {
  at::Tensor prompts;           ///< [B] int64
  at::Tensor chosen, rejected;  ///< [B] int64, responses
  at::Tensor weight;            ///< [B]; the sum over pairs of weight * loss is what is minimised
};

/// Every prompt and ordered pair of responses with its probability: the exact expectation over infinite data. Pairs of
/// probability 0 are left out. Error where there are too many to hold.
WorldPairs all_pairs(const World& world);

/// `count` pairs drawn by seed for prompts drawn by their law, or, with `each_prompt`, so many for each prompt; each label is
/// flipped with probability `label_noise`.
WorldPairs sampled_pairs(const World& world, int64_t count, double label_noise, uint64_t seed,
                         bool each_prompt = false);

/// The mean loss of perfect knowledge: entropy of the labels given the pair, under the proxy reward. Only for all_pairs.
double label_entropy(const World& world, const WorldPairs& pairs);

/// The pairs as any preference recipe takes them: what it needs of policy and reference rows [C,P,V] at every token, and
/// nothing more. `policy`: rows for the streaming head, differentiable. Random numbers differ from visit to visit. Error
/// where hidden states are needed and the policy is a table.
PreferenceBatch preference_batch(const World& world, const WorldPairs& pairs, const Needs& needs, const Rows& policy,
                                 int64_t visit = 0);

}  // namespace kullback
