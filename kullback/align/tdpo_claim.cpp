// What TDPO claims: more reward than DPO for the same KL, and drift that is balanced between the two responses.
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/align/one_step.h"
#include "kullback/align/tdpo.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

ClaimResult run(bool with_baseline) {
  constexpr int64_t seeds = 8;
  const TdpoOptions dpo{.alpha = 0}, ours{.alpha = with_baseline ? 0 : 0.5};  // tdpo2; alpha 0 is DPO
  const std::vector<double> levels{0.3, 0.6};
  std::vector<double> gain(levels.size()), reached(levels.size());
  double margin_dpo = 0, margin_ours = 0, entropy = 0;
  const auto kl_margin = [&](const World& world, const WorldPairs& pairs, const TdpoOptions& o,
                             const at::Tensor& rows) {
    return loss_in_world(world, find_method("tdpo"), &o, pairs, tabular_policy(rows))
        .parts.at("kl_margin")
        .mean()
        .abs()
        .item<double>();
  };
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const World world =
        make_world({.vocabulary = 4, .length = 3, .prompts = 1, .reward = "random", .proxy = "", .seed = seed});
    const WorldPairs pairs = sampled_pairs(world, 300, 0, static_cast<uint64_t>(seed));
    const WorldTraining training{.steps = 400, .learning_rate = 0.05};
    const Course a = course(world, "tdpo", &dpo, pairs, training), b = course(world, "tdpo", &ours, pairs, training);
    for (size_t i = 0; i < levels.size(); ++i) {
      const double more = b.at(levels[i], b.reward) - a.at(levels[i], a.reward);
      if (std::isnan(more)) continue;  // not both get there
      gain[i] += more;
      reached[i] += 1;
    }
    entropy += (b.entropy.back() - a.entropy.back()) / seeds;
    const WorldTraining few{.steps = 60, .learning_rate = 0.05};
    margin_dpo += kl_margin(world, pairs, dpo, train_in_world(world, find_method("tdpo"), &dpo, pairs, few)) / seeds;
    margin_ours += kl_margin(world, pairs, ours, train_in_world(world, find_method("tdpo"), &ours, pairs, few)) / seeds;
  }
  for (size_t i = 0; i < levels.size(); ++i) gain[i] /= reached[i];
  ClaimResult result;
  result.tables.push_back({.title = "Mean over 8 worlds of 300 labelled pairs, beta 0.1",
                           .columns = {text_column("TDPO2 less DPO"), number_column("value")},
                           .rows = {{"reward at KL 0.3", gain[0]},
                                    {"reward at KL 0.6", gain[1]},
                                    {"entropy after 400 steps", entropy},
                                    {"size of the KL margin after 60 steps", margin_ours - margin_dpo}}});
  result.assertions = {at_least("worlds where both reach KL 0.6", reached[1], seeds / 2),
                       at_least("reward of TDPO2 less DPO's at KL 0.3", gain[0], 0.01),
                       at_least("reward of TDPO2 less DPO's at KL 0.6", gain[1], 0.01),
                       at_least("entropy of TDPO2 less DPO's after equal steps", entropy, 0.1),
                       at_least("DPO's KL margin less TDPO2's after equal steps", margin_dpo - margin_ours, 0.01)};
  return result;
}

const RegisteredClaim claim{
    {.name = "tdpo",
     .method = "tdpo",
     .statement = "TDPO2 has more reward than DPO at the same KL from the reference, keeps more entropy, and drifts "
                  "less unequally on chosen and rejected responses.",
     .paper_says = "Zeng et al. 2024, IMDb: the frontier of reward and KL is best for TDPO2, then TDPO1, then DPO, and "
                   "the difference of the two responses' KL grows least with TDPO2.",
     .baseline = "DPO (alpha 0)",
     .run = run}};

}  // namespace
}  // namespace kullback
