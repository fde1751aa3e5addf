#include "kullback/align/one_step.h"

#include <ATen/ATen.h>

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

Tensor normals(at::IntArrayRef sizes, RandomStream& stream) {
  Tensor values = at::empty(sizes, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = stream.normal();
  return values;
}

World one_step_world(int64_t prompts, int64_t responses, uint64_t seed, double reward_deviation) {
  RandomStream stream(seed, "claim/one-step");
  const Tensor reference = at::log_softmax(normals({prompts, responses}, stream), -1);
  const Tensor reward = reward_deviation * normals({prompts, responses}, stream);
  return make_world({.vocabulary = responses, .length = 1, .ends = false}, reference, reward);
}

}  // namespace kullback
