// What DPO claims, where everything can be enumerated.
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/align/dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"
#include "kullback/world/training.h"

namespace kullback {
namespace {

using at::Tensor;

const Method& dpo() { return find_method("dpo", Family::alignment); }

DpoOptions options(double beta, bool without_reference) {
  return {.beta = beta, .reference = without_reference ? DpoOptions::Reference::none : DpoOptions::Reference::policy};
}

/// Infinite data: every prompt and pair with its probability.
ClaimResult exact_claim(bool with_baseline) {
  const World world =
      make_world({.vocabulary = 3, .length = 3, .prompts = 2, .reward = "random", .proxy = "", .seed = 1});
  const WorldPairs pairs = all_pairs(world);
  const double entropy = label_entropy(world, pairs);
  ClaimResult result;
  Table table{.title = "Trained to the end on all pairs",
              .columns = {text_column("method"), number_column("beta"), number_column("loss"),
                          number_column("KL(policy || reference)", {}, "nats"), number_column("reward"),
                          number_column("most reward at this KL"), number_column("largest difference from pi*")}};
  Series curve{.name = "exact frontier"}, with{.name = "DPO", .mark = Mark::points},
      without{.name = "DPO without reference", .mark = Mark::points};
  double from_optimum = 0, from_frontier = 0, closest_without = INFINITY, loss_at_optimum = 0, gradient_at_optimum = 0;

  for (const double beta : {4.0, 2.0, 1.0, 0.5, 0.25}) {
    const Tensor best = best_policy(world, beta);
    Tensor rows;
    double last_loss = 0;
    for (const bool free : {false, true}) {
      if (!(free && with_baseline)) {  // else the method's row was this very run
        const DpoOptions o = options(beta, free || with_baseline);
        rows =
            train_in_world(world, dpo(), &o, pairs, {.steps = 3000}, [&](int64_t, double loss) { last_loss = loss; });
      }
      const Standing s = standing(world, rows);
      const double difference = (response_logps(world.space, rows).exp() - best.exp()).abs().max().item<double>();
      table.rows.push_back({free            ? "without reference"
                            : with_baseline ? "baseline"
                                            : "dpo",
                            beta, last_loss, s.kl, s.reward, s.frontier_reward, difference});
      Series& series = free ? without : with;
      series.x.push_back(s.kl), series.y.push_back(s.reward), series.labels.push_back(fmt::format("beta {}", beta));
      if (free) {
        closest_without = std::min(closest_without, s.gap());
      } else {
        from_optimum = std::max(from_optimum, difference);
        from_frontier = std::max(from_frontier, std::abs(s.gap()));
      }
    }
    const DpoOptions o = options(beta, with_baseline);
    const Tensor best_rows = conditional_logps(world.space, best);
    const double loss = loss_in_world(world, dpo(), &o, pairs, tabular_policy(best_rows)).value.item<double>();
    loss_at_optimum = std::max(loss_at_optimum, std::abs(loss - entropy));
    gradient_at_optimum = std::max(gradient_at_optimum, largest_gradient(world, "dpo", &o, pairs, best_rows));
  }
  for (const FrontierPoint& point : frontier(world, 40)) curve.x.push_back(point.kl), curve.y.push_back(point.reward);
  result.tables.push_back(std::move(table));
  result.plots.push_back(
      {.title = "DPO on infinite data lies on the exact frontier",
       .note = "A world of 2 prompts and 15 responses each, enumerated; every point is a policy trained to the end.",
       .x = {.title = "KL(policy || reference)", .unit = "nats a response", .minimum = 0},
       .y = {.title = "expected reward"},
       .series = {curve, with, without}});
  result.assertions = {
      at_most("largest difference of a probability from reference exp(reward/beta) / Z", from_optimum, 1e-6),
      at_most("largest distance of a trained policy from the frontier, in reward", from_frontier, 1e-6),
      at_most("loss at the optimum less the entropy of the labels", loss_at_optimum, 1e-12),
      at_most("largest gradient at the optimum", gradient_at_optimum, 1e-12),
      at_least("without reference: least distance from the frontier, in reward", closest_without, 0.02)};
  return result;
}

/// Twelve responses a world, sixty worlds side by side as prompts, twenty noisy pairs each.
ClaimResult reference_claim(bool with_baseline) {
  const SequenceSpace space{.vocabulary = 12, .length = 1, .ends = false};
  const std::vector<double> betas{5, 2, 1, 0.5};
  constexpr int64_t worlds = 60;
  RandomStream stream(0, "claim/dpo-reference");
  const Tensor reward = normals({worlds, 12}, stream),
               reference = at::log_softmax(reward + normals({worlds, 12}, stream), -1);
  const World world = make_world(space, reference, reward);
  // The same worlds seen against a reference that knows the reward better.
  const World stronger = make_world(space, optimum(reference, reward, 1).logps, reward);
  const WorldPairs pairs = sampled_pairs(world, 20, 0, 0, /*each_prompt=*/true);

  const auto trained = [&](const World& against, double beta, bool free) {
    const DpoOptions o = options(beta, free);
    return standing(world, train_in_world(against, dpo(), &o, pairs, {.steps = 1000}, {},
                                          tabular_policy(world.reference_rows)))
        .reward;
  };
  ClaimResult result;
  Table table{.title = fmt::format(
                  "Mean true reward over {} worlds of 12 responses and 20 pairs; the reference alone has {:.2f}",
                  worlds, standing(world, world.reference_rows).reward),
              .columns = {number_column("beta"), number_column("dpo"), number_column("without reference"),
                          number_column("stronger reference")}};
  Series plain{.name = "DPO", .mark = Mark::line}, free{.name = "without reference"},
      strong{.name = "stronger reference"};
  double over_free = INFINITY, over_plain = INFINITY;
  for (size_t i = 0; i < betas.size(); ++i) {
    const double with = trained(world, betas[i], with_baseline), without = trained(world, betas[i], true),
                 better = trained(stronger, betas[i], with_baseline);
    table.rows.push_back({betas[i], with, without, better});
    for (auto& [series, value] : {std::pair<Series&, double>{plain, with}, {free, without}, {strong, better}}) {
      series.x.push_back(betas[i]), series.y.push_back(value);
    }
    over_free = std::min(over_free, with - without);
    over_plain = std::min(over_plain, better - with);
  }
  const double inside = std::max(plain.y[1], plain.y[2]);
  result.tables.push_back(std::move(table));
  result.plots.push_back({.title = "What the reference is worth with few, noisy pairs",
                          .note = "Mean over 60 enumerated worlds; trained on 20 pairs each.",
                          .x = {.title = "beta", .scale = Scale::logarithmic},
                          .y = {.title = "expected true reward"},
                          .series = {plain, free, strong}});
  result.assertions = {at_least("DPO less DPO without reference, least over beta", over_free, 0.01),
                       at_least("stronger reference less plain, least over beta", over_plain, 0.01),
                       at_least("best beta inside the sweep less the largest beta", inside - plain.y.front(), 0.005),
                       at_least("best beta inside the sweep less the smallest beta", inside - plain.y.back(), 0)};
  return result;
}

const RegisteredClaim exact{
    {.name = "dpo",
     .method = "dpo",
     .statement = "On infinite data DPO's minimiser is the optimum of reward under a KL limit, so that sweeping beta "
                  "traces the exact reward-KL frontier; without the reference it leaves it.",
     .paper_says =
         "Rafailov et al. 2023, section 4: the optimal policy is reference(y|x) exp(r(x,y)/beta) / Z(x), and the "
         "loss recovers it under the Bradley-Terry model.",
     .baseline = "DPO without reference",
     .run = exact_claim}};

const RegisteredClaim reference{{.name = "dpo-reference",
                                 .method = "dpo",
                                 .statement = "With few noisy pairs, an interior strength of the reference is best, a "
                                              "reference beats none at every beta, and a "
                                              "stronger reference beats the policy's own.",
                                 .paper_says = "Liu et al. 2024, AlpacaEval 2 of Mistral-7B by beta 0.1, 0.05, 0.02, "
                                               "0.01, 0.005: 14.03, 13.29, 16.06, 16.25, 12.36; best without "
                                               "reference 12.84; with a stronger reference 20.25.",
                                 .baseline = "DPO without reference",
                                 .run = reference_claim}};

}  // namespace
}  // namespace kullback
