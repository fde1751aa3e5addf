#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/base/options.h"

namespace kullback {

/// How a loss of tokens [B,T] becomes one number. Every distillation loss has this option.
enum class Reduction {
  token_mean,     ///< over all counted tokens of the step
  sequence_mean,  ///< over each sequence's counted tokens, then over the sequences that have any
  sum
};
const Choices<Reduction>& reductions();

/// What each token weighs in the reduced loss: [B,T] float64, 0 where the mask is false; nothing counted: all 0.
/// `tokens_in_step` counts the whole step's tokens, all accumulated batches and machines together (0: this batch is the
/// step); `sequences_in_step` its sequences that have any. `weight` [B] of each sequence (undefined: all 1) multiplies its
/// tokens, and both counts are then sums of weights.
at::Tensor token_weights(const at::Tensor& mask, Reduction reduction, double tokens_in_step = 0,
                         double sequences_in_step = 0, const at::Tensor& weight = {});

/// [B T]: numbers at the counted places [M] put back, 0 elsewhere, in the mask's shape [B,T].
at::Tensor at_places(const at::Tensor& values, const at::Tensor& places, const at::Tensor& mask);

}  // namespace kullback
