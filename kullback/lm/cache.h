#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// The keys and values of one sequence's past, a pair of tensors a layer, that grow by blocks. Used without gradients
/// only.
class KvCache {
 public:
  explicit KvCache(int64_t layers) : keys_(layers), values_(layers), filled_(layers, 0) {}

  /// Tokens that every layer holds.
  int64_t length() const { return filled_.empty() ? 0 : filled_.back(); }
  /// Forgets all but the first `length` tokens.
  void truncate(int64_t length);
  /// Appends to a layer. keys, values: [T, K, d], rotated already.
  void append(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  /// All of a layer's keys or values so far, as views. [length, K, d]
  at::Tensor keys(int64_t layer) const { return keys_[layer].narrow(0, 0, filled_[layer]); }
  at::Tensor values(int64_t layer) const { return values_[layer].narrow(0, 0, filled_[layer]); }

  KvCache clone() const;

 private:
  std::vector<at::Tensor> keys_, values_;  // [capacity, K, d]
  std::vector<int64_t> filled_;
};

}  // namespace kullback
