// DPO where everything can be enumerated: its loss on all pairs of a one-step world, beside the exact optimum.
#include <ATen/ATen.h>

#include "kullback/align/dpo.h"
#include "kullback/train/check.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

/// One outcome is one response of one token.
Side side(const Tensor& policy_logps, const Tensor& reference_logps, const Tensor& outcomes) {
  const Tensor mask = at::ones({outcomes.size(0), 1}, at::kBool);
  return {.logps = policy_logps.index_select(0, outcomes).unsqueeze(1),
          .reference_logps = reference_logps.index_select(0, outcomes).unsqueeze(1),
          .mask = mask,
          .divergences = {}};
}

/// The expected DPO loss when both responses come from the reference and labels from Bradley-Terry.
Tensor population_loss(const Tensor& policy_logps, const Tensor& reference_logps, const Tensor& rewards, double beta) {
  const PreferencePopulation pairs = preference_population(reference_logps, rewards);
  const PreferenceBatch batch{.chosen = side(policy_logps, reference_logps, pairs.chosen),
                              .rejected = side(policy_logps, reference_logps, pairs.rejected),
                              .weight = pairs.weight,
                              .pairs_in_step = 1};
  return dpo_loss(batch, {.beta = beta}).value;
}

CheckOutputs exact_world(CheckCase& c) {
  const double beta = c.option("beta", 0.1);
  const Tensor rewards = c.tensor("rewards"), reference = at::log_softmax(c.tensor("reference_logits"), -1);
  const Tensor policy = at::log_softmax(c.tensor("policy_logits"), -1);
  const Optimum best = optimum(reference, rewards, beta);
  // The fixture sums pi(i) pi(j) sigmoid(r_i - r_j) loss(i over j) over all i and j, a law whose mass is one half.
  constexpr double mass = 0.5;
  return {{"loss", mass * population_loss(policy, reference, rewards, beta)},
          {"loss_at_optimum", mass * population_loss(best.logps, reference, rewards, beta)},
          {"optimal_logps", best.logps},
          {"log_partition", best.log_partition},
          {"expected_reward_at_optimum", expectation(best.logps, rewards)},
          {"kl_optimum_reference", expectation(best.logps, best.logps - reference)},
          {"expected_reward", expectation(policy, rewards)},
          {"kl_policy_reference", expectation(policy, policy - reference)}};
}

const RegisteredCheck check{"dpo", "exact_world", exact_world};

}  // namespace
}  // namespace kullback
