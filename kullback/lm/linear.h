#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Whether low-rank adapters take part. A policy with its adapters off is its own reference.
enum class AdapterUse { on, off };

/// A low-rank change of a weight: scale * b a. Hu et al. 2021, arXiv 2106.09685.
struct LowRank {
  at::Tensor a;      ///< [r, in]
  at::Tensor b;      ///< [out, r]
  double scale = 1;  ///< alpha / r
};

/// x -> x W^T + bias, plus scale * (x a^T) b^T when there is an adapter and it is on.
struct Linear {
  at::Tensor weight;  ///< [out, in], of the type of x or kept short (weights.h)
  at::Tensor bias;    ///< [out], or undefined
  std::optional<LowRank> adapter;

  /// x: [N, in] -> [N, out]
  at::Tensor operator()(const at::Tensor& x, AdapterUse use = AdapterUse::on) const;
};

/// down(silu(gate) * up), where the product in brackets is not kept for the backward pass but made anew. Both [N, in]
at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up, const Linear& down,
                         AdapterUse use = AdapterUse::on);

/// Each layer's image of rms_norm(x, weight, epsilon), which is not kept for the backward pass but made anew. x: [N, in]
std::vector<at::Tensor> rms_norm_linears(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                                         const std::vector<std::reference_wrapper<const Linear>>& layers,
                                         AdapterUse use = AdapterUse::on);

}  // namespace kullback
