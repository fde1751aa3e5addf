#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Gradients of summed log-probabilities over a linear head alone, in closed form.
struct HeadSide {
  at::Tensor hidden, labels, mask;  ///< [B,T,D], [B,T], [B,T]
};
at::Tensor head_logps(const at::Tensor& weight, const HeadSide& side);      ///< [B,T], 0 where masked
at::Tensor head_gradients(const at::Tensor& weight, const HeadSide& side);  ///< [B,V,D]
/// Cosine of the gradients of each pair of counted tokens of one row: [S,T].
at::Tensor token_cosines(const at::Tensor& weight, const HeadSide& chosen, const HeadSide& rejected, int64_t row);

}  // namespace kullback
