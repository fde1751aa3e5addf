// What LN-DPO claims: as far from the reference as DPO, its answers are shorter where labels favour length.
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/align/ln_dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

using Variant = LnDpoOptions::Variant;

ClaimResult run(bool with_baseline) {
  const World world = make_world(
      {.vocabulary = 3, .length = 5, .prompts = 1, .reward = "random", .proxy = "random + 0.5*length", .seed = 2});
  const WorldPairs pairs = all_pairs(world);
  // Each strength is trained to the end; the policies of a variant make a curve over KL.
  const auto curve = [&](Variant variant, const std::vector<double>& strengths) {
    Course c;
    const auto add = [&](const at::Tensor& rows) {
      const Standing s = standing(world, rows);
      c.kl.push_back(s.kl), c.reward.push_back(s.reward), c.length.push_back(s.length);
    };
    add(world.reference_rows);
    for (const double beta : strengths) {
      const LnDpoOptions o{.variant = variant, .beta = beta};
      add(train_in_world(world, find_method("ln-dpo"), &o, pairs, {.steps = 300}));
    }
    return c;
  };
  const std::vector<double> summed{1.2, 0.9, 0.7, 0.5, 0.4, 0.3, 0.2};
  const Course dpo = curve(Variant::dpo, summed), ours = with_baseline
                                                             ? curve(Variant::dpo, {0.8, 0.6, 0.45, 0.35, 0.25})
                                                             : curve(Variant::ln_dpo, {4, 3, 2, 1.5, 1});
  Table table{
      .title = "Labels from quality + 0.5 * length; 63 responses, all pairs",
      .columns = {number_column("KL(policy || reference)", {}, "nats"), number_column("length, dpo"),
                  number_column("length, ln-dpo"), number_column("quality, dpo"), number_column("quality, ln-dpo")}};
  double shorter = INFINITY;
  for (const double kl : {0.75, 1.0, 1.25}) {
    const double a = dpo.at(kl, dpo.length), b = ours.at(kl, ours.length);
    table.rows.push_back({kl, a, b, dpo.at(kl, dpo.reward), ours.at(kl, ours.reward)});
    shorter = std::min(shorter, a - b);
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {at_least("DPO's mean length less LN-DPO's at equal KL, least over the levels", shorter, 0.02)};
  return result;
}

const RegisteredClaim claim{
    {.name = "ln-dpo",
     .method = "ln-dpo",
     .statement = "Where labels favour length, LN-DPO's answers are shorter than DPO's at the same KL from the "
                  "reference.",
     .paper_says = "Ahrabian et al. 2024: length normalisation brings DPO's long answers back towards the reference's "
                   "length without loss of quality.",
     .baseline = "DPO",
     .run = run}};

}  // namespace
}  // namespace kullback
