#include "kullback/io/allocation_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace {

thread_local bool watching = false;
thread_local std::size_t largest_bytes = 0;
thread_local std::size_t total_bytes = 0;

void* allocate(std::size_t size) {
  if (watching) {
    largest_bytes = std::max(largest_bytes, size);
    total_bytes += size;
  }
  if (void* memory = std::malloc(std::max<std::size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<std::size_t>(size, 1));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<std::size_t>(size, 1));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kullback {

AllocationWatch::AllocationWatch() {
  largest_bytes = total_bytes = 0;
  watching = true;
}
AllocationWatch::~AllocationWatch() { watching = false; }
std::size_t AllocationWatch::largest() const { return largest_bytes; }
std::size_t AllocationWatch::total() const { return total_bytes; }

TEST(AllocationWatch, Counts) {
  const AllocationWatch watch;
  const auto a = std::make_unique<std::vector<char>>(1000);
  const std::vector<char> b(3000);
  EXPECT_EQ(watch.largest(), 3000u);
  EXPECT_GE(watch.total(), 4000u);
}

}  // namespace kullback
