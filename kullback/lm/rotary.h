#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/config.h"

namespace kullback {

/// The turn of every pair at every position of a batch, made once and used by all layers.
struct Rotation {
  at::Tensor cosine, sine;  ///< [N, 1, d/2]
};

/// positions: of each token in its sequence, from 0. Computed in float64, then rounded to `dtype`.
Rotation rotation(const Rope& rope, int64_t head_size, const std::vector<int64_t>& positions, at::ScalarType dtype);

/// Turns the pairs (j, j + d/2) of every head. x: [N, heads, d]. Differentiable; keeps nothing but the rotation.
at::Tensor rotate(const at::Tensor& x, const Rotation& rotation);

}  // namespace kullback
