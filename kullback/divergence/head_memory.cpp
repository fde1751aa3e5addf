#include "kullback/divergence/head_memory.h"

#include <atomic>
#include <mutex>
#include <utility>
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "kullback/base/error.h"
#include "kullback/divergence/head.h"

namespace kullback {
namespace detail {
namespace {

using at::Tensor;

/// What the last walk has left. Never destroyed: the allocator it came from may be gone by then.
struct Spare {
  std::mutex mutex;
  Tensor bytes;
};
Spare& spare() {
  static Spare& only = *new Spare;
  return only;
}

/// New memory, on large pages where the system has them: there are 512 times fewer to hand out.
Tensor new_bytes(int64_t size) {
  const c10::InferenceMode not_inference(false);  // the next walk may be outside of it
  Tensor bytes = at::empty({size}, at::kByte);
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t page = 2 << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data_ptr()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data_ptr()) + bytes.nbytes()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return bytes;
}

}  // namespace

WorkingMemory::WorkingMemory(int64_t bytes, int64_t most) {
  {
    const std::lock_guard lock(spare().mutex);
    bytes_ = std::exchange(spare().bytes, Tensor());
  }
  if (bytes_.defined() && bytes_.numel() >= bytes && bytes_.numel() <= most) return;
  bytes_ = Tensor();  // before the new is taken
  bytes_ = new_bytes(bytes);
}

WorkingMemory::~WorkingMemory() { leave(); }

WorkingMemory& WorkingMemory::operator=(WorkingMemory&& other) noexcept {
  leave();
  bytes_ = std::move(other.bytes_);
  return *this;
}

void WorkingMemory::leave() {
  if (!bytes_.defined()) return;
  const std::lock_guard lock(spare().mutex);
  if (!spare().bytes.defined() || spare().bytes.numel() < bytes_.numel()) spare().bytes = std::move(bytes_);
  bytes_ = Tensor();
}

Tensor WorkingMemory::matrix(int64_t offset, int64_t rows, int64_t columns, at::ScalarType type) const {
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  return bytes_.narrow(0, offset, rows * columns * size).view(type).view({rows, columns});
}

}  // namespace detail

namespace {

std::atomic<int64_t> memory_of_a_walk{128 << 20};

}  // namespace

int64_t head_memory() { return memory_of_a_walk; }

void set_head_memory(int64_t bytes) {
  if (bytes < 16 << 20) fail("the head needs at least 16 MiB of working memory, not {} bytes", bytes);
  memory_of_a_walk = bytes;
}

void release_head_memory() {
  const std::lock_guard lock(detail::spare().mutex);
  detail::spare().bytes = at::Tensor();
}

}  // namespace kullback
