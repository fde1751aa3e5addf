#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace kullback::detail {

/// Working memory of a walk. What one walk has used is left to the next: the system takes as long to hand out new memory,
/// page by page, as a pass over it takes.
class WorkingMemory {
 public:
  WorkingMemory() = default;
  /// `bytes`, from what was left or new. What was left is freed instead where it is more than `most`.
  WorkingMemory(int64_t bytes, int64_t most);
  ~WorkingMemory();
  WorkingMemory(WorkingMemory&& other) = default;
  WorkingMemory& operator=(WorkingMemory&& other) noexcept;

  explicit operator bool() const { return bytes_.defined(); }
  /// The matrix [rows,columns] of that type that starts `offset` bytes (a multiple of 64) into it.
  at::Tensor matrix(int64_t offset, int64_t rows, int64_t columns, at::ScalarType type) const;

 private:
  void leave();

  at::Tensor bytes_;
};

}  // namespace kullback::detail
