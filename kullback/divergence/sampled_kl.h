#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// The estimator of KL(p || q) known as k3, of u = ln p(y) - ln q(y) at samples y of p: exp(-u) - 1 + u, never negative and
/// without bias. Elementwise. Schulman 2020, "Approximating KL divergence".
at::Tensor k3_estimate(const at::Tensor& log_ratio);

}  // namespace kullback
