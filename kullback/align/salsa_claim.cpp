// What SALSA claims: the best policy near the average of two supervised models has more reward than near one of them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/align/one_step.h"
#include "kullback/train/weight_average.h"
#include "kullback/world/claim.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

ClaimResult run(bool with_baseline) {
  constexpr int64_t worlds = 300, responses = 30;
  RandomStream stream(0, "claim/salsa");
  const auto noise = [&](double deviation) { return deviation * normals({worlds, responses}, stream); };
  const Tensor quality = noise(1.5), first = quality + noise(2), second = quality + noise(2),
               reward = quality + noise(1);
  const Tensor soup = with_baseline ? first : weighted_average({first, second}, {0.5, 0.5});
  const auto law = [](const Tensor& logits) { return at::log_softmax(logits, -1); };
  ClaimResult result;
  Table table{.title = "300 worlds of 30 responses: optimum near the average less optimum near one model",
              .columns = {number_column("beta"), number_column("mean gain of reward"), number_column("standard error"),
                          number_column("share of worlds further from the first model")}};
  double least_gain = INFINITY, least_share = INFINITY;
  for (const double beta : {0.5, 1.0, 2.0, 5.0}) {
    const Tensor ours = optimum(law(soup), reward, beta).logps, plain = optimum(law(first), reward, beta).logps;
    const Tensor gain = expectation(ours, reward) - expectation(plain, reward);
    const auto kl = [&](const Tensor& p) { return expectation(p, p - law(first)); };
    const double mean = gain.mean().item<double>(), error = gain.std().item<double>() / std::sqrt(double{worlds}),
                 share = (kl(ours) > kl(plain)).to(at::kDouble).mean().item<double>();
    table.rows.push_back({beta, mean, error, share});
    least_gain = std::min(least_gain, mean / std::max(error, 1e-12));
    least_share = std::min(least_share, share);
  }
  // For policies whose logits are linear in the weights, the average is the normalised geometric mean.
  const Tensor geometric = law(0.5 * law(first) + 0.5 * law(second));
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_least("gain of reward over its standard error, least over beta", least_gain, 2),
      at_least("share of worlds that go further from the first model, least over beta", least_share, 0.7),
      at_most("largest difference of the average from the geometric mean of the laws",
              (law(soup) - geometric).abs().max().item<double>(), 1e-12)};
  return result;
}

const RegisteredClaim claim{
    {.name = "salsa",
     .method = "salsa",
     .statement =
         "The optimum under a KL limit to the average of two noisy supervised models has more reward than that "
         "to one of them, and lies further from it; for log-linear policies the average is the geometric mean.",
     .paper_says = "Chegini et al. 2024: the soup lies in a region of higher reward, and PPO against it reaches higher "
                   "reward and a larger KL than PPO against one model.",
     .baseline = "PPO against the first model (alpha 1)",
     .run = run}};

}  // namespace
}  // namespace kullback
