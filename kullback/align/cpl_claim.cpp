// What CPL claims: preferences by regret lead to the soft-optimal policy, whatever the data came from.
#include <ATen/ATen.h>

#include "kullback/align/cpl.h"
#include "kullback/align/dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

ClaimResult run(bool with_baseline) {
  const World world =
      make_world({.vocabulary = 3, .length = 2, .prompts = 1, .reward = "random", .proxy = "", .seed = 5});
  const WorldPairs pairs = all_pairs(world);
  const double alpha = 0.5;
  const Tensor best = optimum(at::zeros_like(world.reward), world.reward, alpha).logps;
  const auto distance = [&](const Tensor& rows) {
    return (response_logps(world.space, rows) - best).abs().max().item<double>();
  };
  const auto trained = [&](double bias) {
    const CplOptions o{.alpha = alpha, .contrastive_bias = bias};
    return distance(train_in_world(world, find_method("cpl"), &o, pairs, {.steps = 3000}));
  };
  const DpoOptions dpo{.beta = alpha};
  const double consistent = with_baseline
                                ? distance(train_in_world(world, find_method("dpo"), &dpo, pairs, {.steps = 3000}))
                                : trained(1),
               biased = trained(0.5);
  ClaimResult result;
  result.tables.push_back({.title = "Largest difference of a sequence's log-probability from the soft-optimal policy",
                           .columns = {text_column("method"), number_column("difference")},
                           .rows = {{with_baseline ? "dpo" : "cpl, bias 1", consistent}, {"cpl, bias 0.5", biased}}});
  result.assertions = {at_most("bias 1: largest difference from the soft-optimal policy", consistent, 1e-5),
                       at_least("bias 0.5: the same", biased, 0.05)};
  return result;
}

const RegisteredClaim claim{
    {.name = "cpl",
     .method = "cpl",
     .statement =
         "From preferences by regret, CPL with bias 1 learns the soft-optimal policy exp(r / alpha) / Z whatever "
         "law the compared sequences came from; a bias below 1 gives that up.",
     .paper_says = "Hejna et al. 2023, theorem 1: with infinite data CPL recovers the optimal maximum-entropy policy; "
                   "section 3.3: the bias keeps the policy on the data.",
     .baseline = "DPO, whose minimiser depends on the reference",
     .run = run}};

}  // namespace
}  // namespace kullback
