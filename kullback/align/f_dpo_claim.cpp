// What f-DPO claims, where everything can be enumerated: each divergence has its own optimum, and the loss finds it.
#include <ATen/ATen.h>

#include "kullback/align/f_dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;
using Constraint = FdpoOptions::Constraint;

/// E[reward] - beta D_f(law || reference) of each law. [N,K] -> [N]
Tensor objective(const World& world, const Tensor& laws, const FdpoOptions& o) {
  const ScaledDivergence d = constraint(o);
  const Tensor distance = response_divergence(d.divergence.from_policy(), laws, world.reference.expand_as(laws));
  return expectation(laws, world.reward.expand_as(laws)) - o.beta * d.factor * distance;
}

ClaimResult run(bool with_baseline) {
  const World world = one_step_world(1, 6, 4);
  const WorldPairs pairs = all_pairs(world);
  RandomStream stream(0, "claim/f-dpo");
  const Tensor random_laws = at::log_softmax(2 * normals({1000, 6}, stream), -1);
  Table table{.title = "Trained on all pairs, beta 0.5",
              .columns = {text_column("divergence"), number_column("reward"), number_column("entropy", {}, "nats"),
                          number_column("largest difference of a log-probability from the optimum")}};
  double from_optimum = 0, loss_at_optimum = 0, gradient_at_optimum = 0, lead = INFINITY;
  for (const auto& [name, kind] : {std::pair{"reverse_kl", Constraint::reverse_kl},
                                   {"forward_kl", Constraint::forward_kl},
                                   {"jsd", Constraint::jsd},
                                   {"alpha", Constraint::alpha}}) {
    const FdpoOptions o{.beta = 0.5, .divergence = kind};
    const FdpoOptions trained{.beta = 0.5, .divergence = with_baseline ? Constraint::reverse_kl : kind};
    const Tensor best = fdpo_optimum(world.reference[0], world.reward[0], o).unsqueeze(0);
    const Tensor rows = train_in_world(world, find_method("f-dpo"), &trained, pairs, {.steps = 3000});
    const Tensor law = response_logps(world.space, rows);
    const double difference = (law - best).abs().max().item<double>();
    table.rows.push_back({name, standing(world, rows).reward, response_entropy(law).item<double>(), difference});
    from_optimum = std::max(from_optimum, difference);
    const Tensor at_best = conditional_logps(world.space, best);
    const double loss =
        loss_in_world(world, find_method("f-dpo"), &trained, pairs, tabular_policy(at_best)).value.item<double>();
    loss_at_optimum = std::max(loss_at_optimum, std::abs(loss - label_entropy(world, pairs)));
    gradient_at_optimum = std::max(gradient_at_optimum, largest_gradient(world, "f-dpo", &trained, pairs, at_best));
    lead = std::min(lead, (objective(world, best, o) - objective(world, random_laws, o).max()).item<double>());
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_most("largest difference of a log-probability from the divergence's own optimum", from_optimum, 1e-6),
      at_most("loss at the optimum less the entropy of the labels", loss_at_optimum, 1e-12),
      at_most("largest gradient at the optimum", gradient_at_optimum, 1e-12),
      at_least("objective at the optimum less the best of 1000 random policies", lead, 0)};
  return result;
}

const RegisteredClaim claim{
    {.name = "f-dpo",
     .method = "f-dpo",
     .statement = "On infinite data, f-DPO's minimiser is the optimum of reward under its own divergence from the "
                  "reference, for each of the four divergences.",
     .paper_says = "Wang et al. 2023, theorem 1: with f' invertible and without 0 in its domain, the optimal policy is "
                   "reference * (f')^-1((r - lambda) / beta), and the loss recovers it.",
     .baseline = "reverse KL (DPO) in the place of every divergence",
     .run = run}};

}  // namespace
}  // namespace kullback
