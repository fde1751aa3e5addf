// DPO where everything can be enumerated: its loss on all pairs of a one-step world, beside the exact optimum.
#include <ATen/ATen.h>

#include "kullback/align/dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs exact_world(CheckCase& c) {
  const double beta = c.option("beta", 0.1);
  const Tensor rewards = c.tensor("rewards"), reference = at::log_softmax(c.tensor("reference_logits"), -1);
  const Tensor policy = at::log_softmax(c.tensor("policy_logits"), -1);
  const Optimum best = optimum(reference, rewards, beta);
  const auto loss = [&](const Tensor& law) {
    return fixture_population_loss([&](const PreferenceBatch& b) { return dpo_loss(b, {.beta = beta}); }, law,
                                   reference, rewards);
  };
  return {{"loss", loss(policy)},
          {"loss_at_optimum", loss(best.logps)},
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
