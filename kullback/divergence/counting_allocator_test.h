#pragma once

#include <atomic>
#include <cstdint>

#include <c10/core/CPUAllocator.h>

namespace kullback::test {

/// Counts what tensors hold, for tests and benches. What MKL packs inside a product is not in it.
struct CountingAllocator : c10::Allocator {
  c10::Allocator* base = c10::GetDefaultCPUAllocator();
  std::atomic<int64_t> held{0}, peak{0};

  struct Block {
    c10::DataPtr memory;
    int64_t bytes;
    CountingAllocator* owner;
  };
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{base->allocate(bytes), static_cast<int64_t>(bytes), this};
    const int64_t now = held += block->bytes;
    for (int64_t known = peak; known < now && !peak.compare_exchange_weak(known, now);) {
    }
    return {block->memory.get(), block, &release, block->memory.device()};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->held -= block->bytes;
    delete block;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace kullback::test
