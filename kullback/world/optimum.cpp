#include "kullback/world/optimum.h"

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

Optimum optimum(const Tensor& reference_logps, const Tensor& rewards, double beta) {
  const Tensor tilted = reference_logps + rewards / beta;
  const Tensor log_partition = at::logsumexp(tilted, -1);
  return {.logps = tilted - log_partition.unsqueeze(-1), .log_partition = log_partition};
}

Tensor expectation(const Tensor& logps, const Tensor& values) {
  const Tensor p = logps.exp();
  return at::where(p > 0, p * values, at::zeros({}, p.options())).sum(-1);
}

PreferencePopulation preference_population(const Tensor& reference_logps, const Tensor& rewards) {
  const int64_t count = rewards.size(0);
  const Tensor index = at::arange(count, at::kLong);
  const Tensor both = reference_logps.unsqueeze(1) + reference_logps.unsqueeze(0);  // [K,K] log-probability of the draw
  const Tensor preferred = at::log_sigmoid(rewards.unsqueeze(1) - rewards.unsqueeze(0));  // of the label
  // A draw {i, j} comes in either order; both orders together say "i is preferred" with twice the probability of one.
  const Tensor weight = 2 * (both + preferred).exp();
  return {.chosen = index.repeat_interleave(count),
          .rejected = index.repeat({count}),
          .weight = weight.reshape(-1) / weight.sum()};
}

}  // namespace kullback
