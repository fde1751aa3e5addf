#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "kullback/lm/config.h"

namespace kullback {

/// x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension. Zhang and Sennrich 2019, arXiv 1910.07467.
/// x: [N, D], weight: [D] -> [N, D]. Keeps x alone for the backward pass.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// The gradients of x and weight from that of rms_norm(x, weight, epsilon): those that are wanted, the others undefined.
std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                    const at::Tensor& weight, double epsilon, bool of_x,
                                                    bool of_weight);

/// (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension. Ba et al. 2016, arXiv 1607.06450.
/// x: [N, D], weight: [D], bias: [D] or undefined -> [N, D]
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

/// One of the activations, number by number. [N, F]
at::Tensor activate(const at::Tensor& x, Activation activation);

/// silu(gate) * up. Shazeer 2020, arXiv 2002.05202. Both [N, F]
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// The gradients of gate and up from that of swiglu(gate, up). All [N, F]
std::pair<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& gradient, const at::Tensor& gate,
                                                  const at::Tensor& up);

}  // namespace kullback
