#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension. Zhang and Sennrich 2019, arXiv 1910.07467.
/// x: [N, D], weight: [D] -> [N, D]. Keeps x and one number a row for the backward pass.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// silu(gate) * up. Shazeer 2020, arXiv 2002.05202. Both [N, F]. Keeps its two arguments and nothing else.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace kullback
