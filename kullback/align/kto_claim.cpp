// What KTO claims: few good labels do, if their weight makes up for it; contradictory labels do not move the policy.
#include <ATen/ATen.h>

#include "kullback/align/kto.h"
#include "kullback/align/one_step.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

/// Expected loss where every response comes from the reference and is good with probability sigmoid(2 (reward - mean)); a
/// share of the good ones is dropped. The reference point is 0, as the estimate is on one prompt's own data.
Tensor expected_loss(const World& world, const Tensor& law, double kept, const KtoOptions& o) {
  const int64_t count = law.size(0);
  const auto one = [&](bool good) {
    const Side side{.logps = law.unsqueeze(1),
                    .reference_logps = world.reference[0].unsqueeze(1),
                    .mask = at::ones({count, 1}, at::kBool),
                    .divergences = {}};
    return kto_rows_loss(
               {.responses = side, .desirable = at::full({count}, good, at::kBool), .mismatched = {}, .weight = {}}, o)
        .losses;
  };
  const Tensor p = world.reference[0].exp(), r = world.reward[0];
  const Tensor good = at::sigmoid(2 * (r - expectation(world.reference[0], r)));
  return (p * (kept * good * one(true) + (1 - good) * one(false))).sum();
}

/// The law after 300 steps.
Tensor trained(const World& world, double kept, const KtoOptions& o) {
  const Tensor logits = world.reference[0].clone().requires_grad_(true);
  const OptimizerOptions settings{.learning_rate = 0.05, .warmup = 0};
  Optimizer optimizer({{"logits", logits}}, settings);
  for (int64_t step = 0; step < 300; ++step) {
    expected_loss(world, at::log_softmax(logits, 0), kept, o).backward();
    optimizer.step(0.05);
    optimizer.clear_gradients();
  }
  return at::log_softmax(logits.detach(), 0);
}

ClaimResult run(bool with_baseline) {
  const World world = one_step_world(1, 63, 141);
  const auto options = [](double weight) {
    return KtoOptions{.beta = 0.5, .desirable_weight = weight, .variant = KtoOptions::Variant::zero};
  };
  const auto kl = [&](const Tensor& law) { return expectation(law, law - world.reference[0]).item<double>(); };
  const double weight = with_baseline ? 1 : 10;
  const Tensor all = trained(world, 1, options(1)), few = trained(world, 0.1, options(weight)),
               unweighted = trained(world, 0.1, options(1));
  // One response labelled once each way, with the policy at the reference.
  const Tensor logp = at::full({2, 1}, -1.0, at::kDouble).requires_grad_(true);
  const KtoRows both_ways{.responses = {.logps = logp.narrow(0, 0, 1).expand({2, 1}),
                                        .reference_logps = at::full({2, 1}, -1.0, at::kDouble),
                                        .mask = at::ones({2, 1}, at::kBool),
                                        .divergences = {}},
                          .desirable = at::tensor({1, 0}).to(at::kBool),
                          .mismatched = {},
                          .weight = {}};
  kto_rows_loss(both_ways, options(weight / 10)).losses.sum().backward();
  ClaimResult result;
  Table table{
      .title = "After 300 steps, beta 0.5",
      .columns = {text_column("data"), number_column("reward"), number_column("KL(policy || reference)", {}, "nats")}};
  for (const auto& [name, law] : {std::pair<const char*, Tensor>{"all labels", all},
                                  {"a tenth of the good ones, weight 10", few},
                                  {"a tenth of the good ones, weight 1", unweighted}}) {
    table.rows.push_back({name, expectation(law, world.reward[0]).item<double>(), kl(law)});
  }
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_most("all labels and a weighted tenth: largest difference of a log-probability",
              (all - few).abs().max().item<double>(), 1e-6),
      at_least("an unweighted tenth: size of the difference in KL", std::abs(kl(unweighted) - kl(all)), 0.05),
      at_most("gradient of one response labelled once each way", logp.grad().abs().max().item<double>(), 1e-15)};
  return result;
}

const RegisteredClaim claim{
    {.name = "kto",
     .method = "kto",
     .statement = "Dropping nine good labels in ten and weighting the rest by ten leads to the very same policy, and "
                  "contradictory labels of one response do not move it.",
     .paper_says = "Ethayarajh et al. 2024, section 4.3: 90 % of desirable rows can be dropped with lambda_D = 13.33; "
                   "section 4.4: contradictory preferences are ignored.",
     .baseline = "KTO with equal weights",
     .run = run}};

}  // namespace
}  // namespace kullback
