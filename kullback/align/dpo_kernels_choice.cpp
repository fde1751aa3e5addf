// DPO-Kernels' measures of data and of weights: which divergence suits rows, and how heavy-tailed a spectrum is.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/align/dpo_kernels.h"
#include "kullback/base/error.h"

namespace kullback {

using at::Tensor;

DivergenceSelection select_divergence(const Tensor& policy_logits, const Tensor& reference_logits) {
  const Tensor log_p = at::log_softmax(policy_logits, -1), log_q = at::log_softmax(reference_logits, -1);
  const Tensor p = log_p.exp(), q = log_q.exp(), ratio = log_p - log_q;
  const Tensor centred = ratio - (p * ratio).sum(-1, true);
  const Tensor variance = (p * centred.square()).sum(-1), fourth = (p * centred.pow(4)).sum(-1);
  DivergenceSelection s{.overlap = at::minimum(p, q).sum(-1).mean(),
                        .drift = ((p - q).abs().sum(-1) / 2).mean(),
                        .kurtosis = (fourth / variance.square() - 3).mean(),
                        .divergence = "hellinger"};
  if (s.overlap.item<double>() < 0.5) {
    s.divergence = "js";
  } else if (s.kurtosis.item<double>() > 3) {
    s.divergence = "renyi";
  } else if (s.drift.item<double>() < 0.1) {
    s.divergence = "kl";
  }
  return s;
}

Spectrum spectrum_exponent(const Tensor& eigenvalues, int64_t least_tail) {
  const Tensor sorted = std::get<0>(eigenvalues.to(at::kDouble).sort()).contiguous();
  const std::vector<double> x(sorted.const_data_ptr<double>(), sorted.const_data_ptr<double>() + sorted.numel());
  Spectrum best;
  for (size_t begin = 0; begin + static_cast<size_t>(least_tail) <= x.size(); ++begin) {
    const auto count = static_cast<double>(x.size() - begin);
    double logs = 0;
    for (size_t i = begin; i < x.size(); ++i) logs += std::log(x[i] / x[begin]);
    if (x[begin] <= 0 || logs <= 0) continue;
    const double exponent = 1 + count / logs;
    double distance = 0;
    for (size_t i = begin; i < x.size(); ++i) {
      const double law = 1 - std::pow(x[i] / x[begin], 1 - exponent), below = static_cast<double>(i - begin) / count;
      distance = std::max({distance, law - below, below + 1 / count - law});  // both sides of the empirical step
    }
    if (best.tail == 0 || distance < best.distance) {
      best = {.distance = distance,
              .exponent = exponent,
              .from = x[begin],
              .weighted_exponent = exponent * std::log10(x.back()),
              .tail = static_cast<int64_t>(count)};
    }
  }
  if (best.tail == 0) fail("a spectrum of {} eigenvalues has no tail of {} to fit", x.size(), least_tail);
  return best;
}

}  // namespace kullback
