// What H-DPO claims: its minimiser is the optimum with a weight on entropy, and a weight below 1 chooses a mode.
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "kullback/align/h_dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

/// Mean and deviation of the Gaussian q that minimises -alpha H(q) + cross-entropy(q, 0.6 N(1.2, 0.6^2) + 0.4 N(-1.2, 0.6^2)).
std::pair<double, double> best_gaussian(double alpha) {
  const Tensor x = at::linspace(-8, 8, 1601, at::kDouble);
  const auto log_normal = [&](double mean, double deviation) {
    return -((x - mean) / deviation).square() / 2 - std::log(deviation) - std::log(2 * std::numbers::pi) / 2;
  };
  const Tensor target = at::logaddexp(std::log(0.6) + log_normal(1.2, 0.6), std::log(0.4) + log_normal(-1.2, 0.6));
  double least = INFINITY;
  std::pair<double, double> best;
  for (double mean = -1.5; mean <= 1.5; mean += 0.05) {
    for (double deviation = 0.3; deviation <= 2; deviation += 0.05) {
      const Tensor q = log_normal(mean, deviation).exp() * 0.01;
      const double entropy = std::log(deviation) + (1 + std::log(2 * std::numbers::pi)) / 2;
      const double value = -alpha * entropy - (q * target).sum().item<double>();
      if (value < least) least = value, best = {mean, deviation};
    }
  }
  return best;
}

ClaimResult run(bool with_baseline) {
  const World world = one_step_world(1, 6, 21);
  const WorldPairs pairs = all_pairs(world);
  Table table{.title = "Trained on all pairs, beta 0.5",
              .columns = {number_column("alpha"), number_column("reward"), number_column("entropy", {}, "nats"),
                          number_column("largest difference of a log-probability from the optimum")}};
  double from_optimum = 0, loss_at_optimum = 0, gradient_at_optimum = 0, growth = INFINITY, entropy_before = -INFINITY;
  for (const double alpha : {0.5, 1.0, 1.5}) {
    const HdpoOptions o{.alpha = with_baseline ? 1 : alpha, .beta = 0.5};
    const Tensor best = optimum(world.reference / alpha, world.reward, alpha * o.beta).logps;
    const Tensor rows = train_in_world(world, find_method("h-dpo"), &o, pairs, {.steps = 3000});
    const Tensor law = response_logps(world.space, rows), at_best = conditional_logps(world.space, best);
    const double difference = (law - best).abs().max().item<double>(), entropy = response_entropy(law).item<double>();
    table.rows.push_back({alpha, standing(world, rows).reward, entropy, difference});
    from_optimum = std::max(from_optimum, difference);
    growth = std::min(growth, entropy - entropy_before), entropy_before = entropy;
    const double loss =
        loss_in_world(world, find_method("h-dpo"), &o, pairs, tabular_policy(at_best)).value.item<double>();
    loss_at_optimum = std::max(loss_at_optimum, std::abs(loss - label_entropy(world, pairs)));
    gradient_at_optimum = std::max(gradient_at_optimum, largest_gradient(world, "h-dpo", &o, pairs, at_best));
  }
  const auto wide = best_gaussian(with_baseline ? 1 : 0.8), narrow = best_gaussian(with_baseline ? 1 : 0.6);
  Table modes{.title = "The best Gaussian for a mixture with modes at 1.2 and -1.2",
              .columns = {number_column("alpha"), number_column("mean"), number_column("deviation")},
              .rows = {{0.8, wide.first, wide.second}, {0.6, narrow.first, narrow.second}}};
  ClaimResult result;
  result.tables = {std::move(table), std::move(modes)};
  result.assertions = {at_most("largest difference of a log-probability from the optimum", from_optimum, 1e-6),
                       at_most("loss at the optimum less the entropy of the labels", loss_at_optimum, 1e-12),
                       at_most("largest gradient at the optimum", gradient_at_optimum, 1e-12),
                       at_least("least growth of entropy from alpha 0.5 to 1 to 1.5", growth, 0.01),
                       at_most("mean of the best Gaussian at alpha 0.8: between the modes", wide.first, 0.6),
                       at_least("mean of the best Gaussian at alpha 0.6: on the larger mode", narrow.first, 0.9)};
  return result;
}

const RegisteredClaim claim{
    {.name = "h-dpo",
     .method = "h-dpo",
     .statement =
         "On infinite data H-DPO's minimiser is reference^(1/alpha) exp(r / (alpha beta)) / Z, its entropy grows "
         "with alpha, and an alpha below 1 chooses a mode where reverse KL straddles two.",
     .paper_says = "Omura et al. 2024: the entropy's weight alpha in -alpha H + cross-entropy lets the policy sharpen "
                   "onto modes that minimising reverse KL spreads over.",
     .baseline = "DPO (alpha 1)",
     .run = run}};

}  // namespace
}  // namespace kullback
