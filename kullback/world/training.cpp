#include "kullback/world/training.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/train/optimizer.h"
#include "kullback/train/weight_average.h"

namespace kullback {

using at::Tensor;

const Options<WorldTraining>& world_training_options() {
  static const auto options =
      Options<WorldTraining>()
          .option("steps", &WorldTraining::steps, at_least(1), "steps of AdamW on all pairs at once")
          .option("learning-rate", &WorldTraining::learning_rate, positive,
                  "at the start; it falls to 0 along a cosine")
          .option("pairs", &WorldTraining::pairs, non_negative,
                  "sampled pairs; 0: the exact expectation over all pairs")
          .option("label-noise", &WorldTraining::label_noise, fraction,
                  "probability that a sampled pair's label is flipped")
          .option("seed", &WorldTraining::seed, non_negative, "of sampled pairs");
  return options;
}

WorldPairs pairs_for(const World& world, const WorldTraining& training) {
  if (training.pairs == 0) {
    if (training.label_noise > 0) fail("option --label-noise: labels are exact where all pairs are; give --pairs too");
    return all_pairs(world);
  }
  return sampled_pairs(world, training.pairs, training.label_noise, static_cast<uint64_t>(training.seed));
}

namespace {

const PreferenceRecipe& recipe_of(const Method& method) {
  const auto* recipe = std::any_cast<PreferenceRecipe>(&method.recipe);
  if (recipe == nullptr) fail("option --method: {} does not train on preference pairs", method.name);
  return *recipe;
}

}  // namespace

PreferenceLoss loss_in_world(const World& world, const Method& method, const void* options, const WorldPairs& pairs,
                             const Policy& policy, int64_t visit) {
  const PreferenceRecipe& recipe = recipe_of(method);
  return recipe.loss(preference_batch(world, pairs, recipe.needs(options), policy.rows(), visit), options);
}

Tensor train_in_world(const World& world, const Method& method, const void* options, const WorldPairs& pairs,
                      const WorldTraining& training, const std::function<void(int64_t, double)>& watch,
                      std::optional<Policy> start) {
  recipe_of(method).validate(options);
  const Policy policy = start ? *std::move(start) : fresh_policy(world);
  World against = world;  // whose reference may follow the policy
  const auto rule = recipe_of(method).needs(options).moving_reference;
  const std::optional<Policy> moving = rule ? std::optional(fresh_policy(world)) : std::nullopt;
  const OptimizerOptions adamw{.learning_rate = training.learning_rate, .warmup = 0};
  Optimizer optimizer(policy.parameters, adamw);
  for (int64_t step = 0; step < training.steps; ++step) {
    const PreferenceLoss loss = loss_in_world(against, method, options, pairs, policy, step);
    const double value = loss.value.item<double>();
    if (!std::isfinite(value)) fail("step {}: the loss of {} is {}", step + 1, method.name, value);
    loss.value.backward();
    optimizer.step(training.learning_rate * schedule_factor(adamw, step, training.steps));
    optimizer.clear_gradients();
    if (rule && rule->now(step + 1, training.steps)) {
      move_towards(moving->parameters, policy.parameters, rule->weight);
      against.reference_rows = moving->log_rows(world.space).detach();
      against.reference = response_logps(world.space, against.reference_rows);
    }
    if (watch) watch(step + 1, value);
  }
  const at::NoGradGuard no_grad;
  return policy.log_rows(world.space);
}

}  // namespace kullback
