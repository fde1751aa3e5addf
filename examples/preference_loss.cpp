// A new preference loss: a function and a registration. `kullback align` would run it on real models; here it trains a policy
// in a world where everything can be enumerated, and says how near to the exact frontier it came.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <kullback/train/pairwise.h>
#include <kullback/train/recipe.h>
#include <kullback/world/training.h>

using namespace kullback;

struct SquaredOptions {
  double beta = 0.5;  // strength of the pull to the reference
};

/// (beta (difference of log-ratios) - 1/2)^2, as IPO has it up to its scale.
PreferenceLoss squared_loss(const PreferenceBatch& batch, const SquaredOptions& o) {
  const at::Tensor chosen = o.beta * score(batch.chosen).log_ratio(),
                   rejected = o.beta * score(batch.rejected).log_ratio();  // [B]
  return pairwise_loss(batch, (chosen - rejected - 0.5).square(), chosen, rejected, chosen - rejected);
}

const Registered squared{preference_method<SquaredOptions>("squared")
                             .summary("Squared distance of the margin from a half")
                             .option("beta", &SquaredOptions::beta, positive, "strength of the pull to the reference")
                             .loss(squared_loss)};

int main() {
  const World world = make_world(WorldOptions{.reward = "random + 0.5*length", .proxy = {}});
  const SquaredOptions options;
  const WorldTraining training{.steps = 300};
  const at::Tensor rows = train_in_world(world, find_method("squared"), &options, pairs_for(world, training), training);
  const Standing before = standing(world, world.reference_rows), after = standing(world, rows);
  fmt::print("reward {:.4f} before, {:.4f} after; at its KL of {:.4f} nats the most is {:.4f}\n", before.reward,
             after.reward, after.kl, after.frontier_reward);
  return after.reward > before.reward && after.reward <= after.frontier_reward + 1e-9 ? 0 : 1;
}
