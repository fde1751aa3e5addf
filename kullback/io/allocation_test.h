#pragma once

#include <cstddef>

namespace kullback {

/// Counts what operator new hands out while it lives, on this thread: a reader that believes a lying length shows here.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  std::size_t largest() const;  ///< bytes of the largest single allocation
  std::size_t total() const;    ///< bytes of all of them, freed or not
};

}  // namespace kullback
