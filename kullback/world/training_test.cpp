#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/train/recipe.h"
#include "kullback/world/law.h"
#include "kullback/world/training.h"

namespace kullback {
namespace {

using at::Tensor;

struct NoOptions {
  double beta = 1;
};

/// A method of the test's own: the plainest preference loss, with every need switched on, to see what a recipe is given.
Method method(std::function<PreferenceLoss(const PreferenceBatch&)> loss, Needs needs) {
  return preference_method<NoOptions>("in the test")
      .option("beta", &NoOptions::beta, positive, "strength")
      .needs([needs](const NoOptions&) { return needs; })
      .loss([loss](const PreferenceBatch& batch, const NoOptions&) { return loss(batch); });
}

PreferenceLoss bradley_terry(const PreferenceBatch& b) {
  const auto ratio = [](const Side& s) { return sequence_sum(s.logps - s.reference_logps, s.mask); };
  const Tensor losses = -at::log_sigmoid(ratio(b.chosen) - ratio(b.rejected));
  return {
      .value = mean_over_pairs(losses, b), .losses = losses, .chosen_rewards = {}, .rejected_rewards = {}, .parts = {}};
}

const Needs reference_logps{.reference_logps = true, .divergences = {}};

TEST(TrainingInAWorld, ReachesTheOptimum) {
  const World world = make_world({.vocabulary = 3, .length = 2, .prompts = 2, .reward = "random", .proxy = ""});
  const NoOptions o;
  const Tensor rows =
      train_in_world(world, method(bradley_terry, reference_logps), &o, all_pairs(world), {.steps = 1500});
  EXPECT_TRUE(at::allclose(response_logps(world.space, rows).exp(), best_policy(world, 1).exp(), 0, 1e-6));
}

TEST(TrainingInAWorld, ATransformerLearnsTheSameThing) {
  const World world = make_world({.vocabulary = 3,
                                  .length = 2,
                                  .prompts = 2,
                                  .policy = WorldOptions::Policy::transformer,
                                  .reward = "random",
                                  .proxy = ""});
  const NoOptions o;
  const Tensor before = world.reference_rows.clone();
  const Tensor rows = train_in_world(world, method(bradley_terry, reference_logps), &o, all_pairs(world),
                                     {.steps = 300, .learning_rate = 0.01});
  const Standing start = standing(world, world.reference_rows), end = standing(world, rows);
  EXPECT_GT(end.reward, start.reward + 0.1);
  EXPECT_LT(end.gap(), 0.02);
  // The world's own transformer did not move.
  EXPECT_TRUE(at::equal(before, make_world({.vocabulary = 3,
                                            .length = 2,
                                            .prompts = 2,
                                            .policy = WorldOptions::Policy::transformer,
                                            .reward = "random",
                                            .proxy = ""})
                                    .reference_rows));
}

TEST(TrainingInAWorld, RecipesAreGivenWhatTheyNeed) {
  const World world =
      make_world({.vocabulary = 3, .length = 3, .prompts = 2, .reward = "random", .proxy = "", .seed = 2});
  const WorldPairs pairs = all_pairs(world);
  const Policy policy = tabular_policy(world.reference_rows + 1e-3);
  const Needs all{
      .reference_logps = true, .reference_without_prompt = true, .divergences = {divergence("kl").from_reference()}};
  const PreferenceBatch batch = preference_batch(world, pairs, all, policy.rows());
  ASSERT_EQ(batch.chosen.divergences.size(), 1U);
  EXPECT_EQ(batch.chosen.divergences[0].sizes(), batch.chosen.logps.sizes());
  // Without the prompt the reference's law of responses is the mixture of its laws over prompts.
  const Tensor mixture =
      at::logsumexp(world.reference + world.prompts.log().unsqueeze(1), 0).index_select(0, pairs.chosen);
  EXPECT_TRUE(at::allclose(sequence_sum(batch.chosen.reference_logps, batch.chosen.mask), mixture, 0, 1e-12));
  const PreferenceBatch bare = preference_batch(world, pairs, {.divergences = {}}, policy.rows());
  EXPECT_FALSE(bare.chosen.reference_logps.defined());
  EXPECT_TRUE(bare.chosen.divergences.empty());
}

TEST(TrainingInAWorld, SampledPairsTendToTheExactExpectation) {
  const World world = make_world({.vocabulary = 3, .length = 2, .prompts = 2, .reward = "random", .proxy = ""});
  const NoOptions o;
  const Method m = method(bradley_terry, reference_logps);
  RandomStream stream(1);
  const Policy policy = tabular_policy(random_rows(world.space, 2, 1, stream));
  const auto loss = [&](const WorldPairs& pairs) {
    return loss_in_world(world, m, &o, pairs, policy).value.item<double>();
  };
  const double exact = loss(all_pairs(world));
  EXPECT_NEAR(loss(sampled_pairs(world, 40000, 0, 1)), exact, 0.02);
  // All labels wrong: the loss of each pair turned round.
  WorldPairs turned = all_pairs(world);
  std::swap(turned.chosen, turned.rejected);
  EXPECT_NEAR(loss(sampled_pairs(world, 40000, 1, 1)), loss(turned), 0.02);
}

TEST(TrainingInAWorld, LabelsFollowTheProxy) {
  const World world =
      make_world({.vocabulary = 3, .length = 2, .prompts = 1, .reward = "length", .proxy = "0 * length - 20*length"});
  const WorldPairs pairs = all_pairs(world);
  const Tensor reward = world.reward[0];
  const Tensor lead = reward.index_select(0, pairs.chosen) - reward.index_select(0, pairs.rejected);
  EXPECT_LT((pairs.weight * (lead > 0)).sum().item<double>(), 1e-6);
}

TEST(TrainingInAWorld, TooManyPairsAreRefused) {
  const World world = make_world({.vocabulary = 6, .length = 5, .prompts = 1, .reward = "length", .proxy = ""});
  EXPECT_THROW(all_pairs(world), Error);
  EXPECT_EQ(sampled_pairs(world, 100, 0, 0).chosen.size(0), 100);
}

TEST(TrainingInAWorld, ALossThatIsNotFiniteStops) {
  const World world = make_world({.vocabulary = 3, .length = 1, .prompts = 1, .reward = "length", .proxy = ""});
  const NoOptions o;
  const auto broken = [](const PreferenceBatch& b) {
    PreferenceLoss loss = bradley_terry(b);
    loss.value = loss.value / 0;
    return loss;
  };
  EXPECT_THROW(train_in_world(world, method(broken, reference_logps), &o, all_pairs(world), {}), Error);
}

}  // namespace
}  // namespace kullback
