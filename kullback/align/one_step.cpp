#include "kullback/align/one_step.h"

#include <ATen/ATen.h>

#include "kullback/base/registry.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {

using at::Tensor;

PreferenceBatch population_batch(const Tensor& policy_logps, const Tensor& reference_logps, const Tensor& rewards) {
  const PreferencePopulation pairs = preference_population(reference_logps, rewards);
  const auto side = [&](const Tensor& outcomes) {
    return Side{.logps = policy_logps.index_select(0, outcomes).unsqueeze(1),
                .reference_logps = reference_logps.index_select(0, outcomes).unsqueeze(1),
                .mask = at::ones({outcomes.size(0), 1}, at::kBool),
                .divergences = {}};
  };
  return {.chosen = side(pairs.chosen), .rejected = side(pairs.rejected), .weight = pairs.weight, .pairs_in_step = 1};
}

Tensor fixture_population_loss(const std::function<PreferenceLoss(const PreferenceBatch&)>& loss,
                               const Tensor& policy_logps, const Tensor& reference_logps, const Tensor& rewards) {
  constexpr double mass = 0.5;
  return mass * loss(population_batch(policy_logps, reference_logps, rewards)).value;
}

double largest_gradient(const World& world, const std::string& method, const void* options, const WorldPairs& pairs,
                        const Tensor& rows) {
  const Policy policy = tabular_policy(rows);
  loss_in_world(world, find_method(method), options, pairs, policy).value.backward();
  return policy.parameters[0].tensor.grad().abs().max().item<double>();
}

double Course::at(double level, const std::vector<double>& values) const {
  for (size_t i = 1; i < kl.size(); ++i) {
    if (kl[i] < level || kl[i - 1] >= level) continue;
    const double share = (level - kl[i - 1]) / (kl[i] - kl[i - 1]);
    return values[i - 1] + share * (values[i] - values[i - 1]);
  }
  return std::nan("");
}

Course course(const World& world, const std::string& method, const void* options, const WorldPairs& pairs,
              const WorldTraining& training) {
  Course seen;
  const Policy policy = tabular_policy(world.reference_rows);
  const auto look = [&](int64_t, double) {
    const at::NoGradGuard no_grad;
    const Tensor rows = policy.log_rows(world.space), logps = response_logps(world.space, rows);
    seen.kl.push_back(over_prompts(world, expectation(logps, logps - world.reference)));
    seen.reward.push_back(over_prompts(world, expectation(logps, world.reward)));
    seen.length.push_back(over_prompts(world, expected_length(world.space, rows)));
    seen.entropy.push_back(over_prompts(world, response_entropy(logps)));
  };
  look(0, 0);
  train_in_world(world, find_method(method), options, pairs, training, look, policy);
  return seen;
}

World one_step_world(int64_t prompts, int64_t responses, uint64_t seed, double reward_deviation) {
  RandomStream stream(seed, "claim/one-step");
  const Tensor reference = at::log_softmax(normals({prompts, responses}, stream), -1);
  const Tensor reward = reward_deviation * normals({prompts, responses}, stream);
  return make_world({.vocabulary = responses, .length = 1, .ends = false}, reference, reward);
}

}  // namespace kullback
