// What R-DPO claims: where labels pay for length, its price takes that out again, and nothing else.
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/align/r_dpo.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"
#include "kullback/world/training.h"

namespace kullback {
namespace {

ClaimResult run(bool with_baseline) {
  World world = make_world({.vocabulary = 3, .length = 4, .prompts = 1, .reward = "random", .proxy = "", .seed = 2});
  world.proxy = world.reward + 0.5 * world.table.mask.sum(1).to(at::kDouble);  // every token that is said, the end too
  const WorldPairs pairs = all_pairs(world);                                   // labelled by the proxy
  Table table{.title = "Labels from quality + 0.5 * length; all pairs, trained to the end",
              .columns = {number_column("beta"), number_column("alpha"), number_column("length"),
                          number_column("KL(policy || reference)", {}, "nats"), number_column("quality"),
                          number_column("most quality at this KL")}};
  double from_frontier = 0;
  for (const double beta : {2.0, 1.0, 0.5}) {
    for (const double alpha : {0.0, 0.5}) {
      const RdpoOptions o{.beta = beta, .alpha = with_baseline ? 0 : alpha};
      const Standing s = standing(world, train_in_world(world, find_method("r-dpo"), &o, pairs, {.steps = 1500}));
      table.rows.push_back({beta, o.alpha, s.length, s.kl, s.reward, s.frontier_reward});
      if (alpha > 0) from_frontier = std::max(from_frontier, std::abs(s.gap()));
    }
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {at_most("largest distance from the frontier of quality, in quality", from_frontier, 1e-6)};
  return result;
}

const RegisteredClaim claim{
    {.name = "r-dpo",
     .method = "r-dpo",
     .statement = "Where labels favour length by a price a token, R-DPO with that price lies on the exact frontier of "
                  "quality; DPO buys length instead.",
     .paper_says = "Park et al. 2024: a price on length in DPO's reward keeps answers short without loss of quality.",
     .baseline = "DPO (alpha 0)",
     .run = run}};

}  // namespace
}  // namespace kullback
