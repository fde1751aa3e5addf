// What LN-DPO claims: as far from the reference as DPO, its answers are shorter where labels favour length.
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
  const WorldTraining training{.steps = 200};
  const LnDpoOptions dpo{.variant = Variant::dpo, .beta = 0.3};
  const LnDpoOptions ours{.variant = with_baseline ? Variant::dpo : Variant::ln_dpo, .beta = with_baseline ? 0.3 : 1.5};
  const Course with_dpo = course(world, "ln-dpo", &dpo, pairs, training),
               with_ours = course(world, "ln-dpo", &ours, pairs, training);
  Table table{
      .title = "Labels from quality + 0.5 * length; 63 responses, all pairs",
      .columns = {number_column("KL(policy || reference)", {}, "nats"), number_column("length, dpo"),
                  number_column("length, ln-dpo"), number_column("quality, dpo"), number_column("quality, ln-dpo")}};
  double shorter = INFINITY;
  for (const double kl : {0.5, 0.75, 1.0}) {
    const double a = with_dpo.at(kl, with_dpo.length), b = with_ours.at(kl, with_ours.length);
    table.rows.push_back({kl, a, b, with_dpo.at(kl, with_dpo.reward), with_ours.at(kl, with_ours.reward)});
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
