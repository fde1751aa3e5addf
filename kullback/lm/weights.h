#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// How a model keeps its matrices. Only the weights are rounded: norms and biases stay as they are, and activations, caches
/// and sums are float32 whatever the matrices are.
enum class WeightType {
  float32,
  bfloat16,  ///< rounded to 8 bits of mantissa
  int8,      ///< blocks of 32 numbers of a row share a scale: those of GGUF's Q8_0, bit for bit. Rows that are no whole
             ///< blocks are kept as bfloat16
};

/// The types by name, as options have them.
const std::vector<std::pair<std::string, WeightType>>& weight_types();

/// A matrix [rows, length] of float32 as the type keeps it: float32 or bfloat16 [rows, length], or int8 blocks, uint8 [rows,
/// length / 32 * 34]. Throws an Error for a number beyond 65504 that int8 is to keep.
at::Tensor kept_as(const at::Tensor& matrix, WeightType type);

/// The bytes that it takes then.
int64_t kept_bytes(const at::Tensor& matrix, WeightType type);

/// Whether a matrix of a model that computes in `computed` is kept in fewer bytes than that.
inline bool is_short(const at::Tensor& kept, at::ScalarType computed) { return kept.scalar_type() != computed; }

/// The numbers of a row of a kept matrix.
int64_t row_length(const at::Tensor& kept);

/// The matrix that is kept, in float32. [rows, length]
at::Tensor in_full(const at::Tensor& kept);

/// Rows of it, by number: an embedding. ids: [N] int64 -> [N, length] float32
at::Tensor rows_in_full(const at::Tensor& kept, const at::Tensor& ids);

/// x W^T for float32 x [N, length] -> [N, rows]. Takes no gradient. Few rows are multiplied by vector code that reads the
/// kept numbers once, and a row's product does not depend, to the last bit, on the rows beside it; many are multiplied by
/// parts of W in full, which give the same but for the order of sums.
at::Tensor kept_product(const at::Tensor& x, const at::Tensor& kept);

/// The largest number of rows that count as few.
inline constexpr int64_t few_rows = 32;

}  // namespace kullback
