#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/config.h"

namespace kullback {

/// The turn of every pair at every position of a batch, made once and used by all layers.
struct Rotation {
  at::Tensor cosine, sine;  ///< [N, 1, size/2]
};

/// A run of neighbouring positions of one sequence.
struct PositionRun {
  int64_t first = 0;    ///< the first token's place in its sequence, from 0
  int64_t count = 0;    ///< tokens
  int64_t context = 0;  ///< length of the sequence that the rotary scaling is to fit
};

/// The rotations of runs laid end to end; `size` dimensions of each head are turned. Computed in float64, then rounded
/// to `dtype`.
Rotation rotation(const Rope& rope, int64_t size, const std::vector<PositionRun>& runs, at::ScalarType dtype);

/// Turns the pairs (j, j + size/2) of the first `size` dimensions of every head; the rest pass through. x: [N, heads, d].
/// Differentiable; keeps nothing but the rotation.
at::Tensor rotate(const at::Tensor& x, const Rotation& rotation);

}  // namespace kullback
