#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// Exact optimal transport between two laws: cost of moving p [V] to q [V] at cost [V,V] >= 0, and its dual potential of p
/// [V], which is the gradient of the cost in p up to a constant. float64. For small V: shortest augmenting paths, V^3.
struct Transport {
  double cost = 0;
  at::Tensor potential;
};
Transport transport(const at::Tensor& p, const at::Tensor& q, const at::Tensor& cost);

/// The cost for rows of laws, [N,V] each -> [N], differentiable in the first.
at::Tensor transport_cost(const at::Tensor& p, const at::Tensor& q, const at::Tensor& cost);

}  // namespace kullback
