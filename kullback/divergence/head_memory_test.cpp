// How much memory a walk takes beyond its inputs, outputs and gradients.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/divergence/counting_allocator_test.h"
#include "kullback/divergence/head.h"
#include "kullback/divergence/rows_test.h"

namespace kullback::test {
namespace {

using at::Tensor;

/// Counts from its making on; never destroyed, for tensors that live longer than a test.
CountingAllocator& counting() {
  static CountingAllocator& only = *[] {
    auto* allocator = new CountingAllocator;
    c10::SetCPUAllocator(allocator, 100);
    return allocator;
  }();
  return only;
}

struct Shape {
  int64_t tokens, width, vocabulary;
  at::ScalarType type;
  int64_t memory;
};

enum class Weights { known, unknown, frozen };

/// Peak bytes beyond inputs, outputs and gradients.
int64_t extra(const Shape& shape, Weights weights, const char* name) {
  CountingAllocator& allocator = counting();
  Rows policy, reference;
  policy.hidden = normal({shape.tokens, shape.width}, shape.type, 1).requires_grad_(true);
  policy.weight = normal({shape.vocabulary, shape.width}, shape.type, 2).requires_grad_(weights != Weights::frozen);
  reference.hidden = normal({shape.tokens, shape.width + 1}, shape.type, 3);
  reference.weight = normal({shape.vocabulary, shape.width + 1}, shape.type, 4);
  HeadRequest request;
  request.divergences = {divergence(name).from_reference()};
  HeadStatistics ones;
  ones.divergences = {at::ones({shape.tokens}, at::kDouble)};
  HeadSettings settings;
  settings.memory = shape.memory;

  release_head_memory();
  const int64_t before = allocator.held;
  allocator.peak = before;
  const Tensor loss = weights == Weights::known
                          ? head_loss(policy, reference, request, ones, settings).loss
                          : head_statistics(policy, reference, request, settings).divergences[0].log().sum();
  loss.backward();
  int64_t gradients = static_cast<int64_t>(policy.hidden.grad().nbytes());
  if (policy.weight.requires_grad()) gradients += static_cast<int64_t>(policy.weight.grad().nbytes());
  const int64_t result = allocator.peak - before - gradients;
  release_head_memory();
  return result;
}

TEST(HeadMemory, StaysWithinTheLimit) {
  constexpr int64_t mib = 1 << 20;
  for (const Shape& shape :
       {Shape{300, 8, 49152, at::kFloat, 128 * mib}, Shape{700, 8, 49152, at::kFloat, 128 * mib},
        Shape{150, 8, 49152, at::kFloat, 16 * mib}, Shape{100, 16, 131072, at::kFloat, 16 * mib},
        Shape{150, 8, 49152, at::kBFloat16, 16 * mib}, Shape{40, 512, 9000, at::kBFloat16, 16 * mib},
        Shape{40, 8, 131072, at::kDouble, 16 * mib}, Shape{5000, 64, 100, at::kFloat, 16 * mib}}) {
    for (const Weights weights : {Weights::known, Weights::unknown, Weights::frozen}) {
      // A tensor of a number a token, here and there, is not counted against it.
      EXPECT_LE(extra(shape, weights, "kl"), shape.memory + 200 * shape.tokens)
          << shape.tokens << "x" << shape.width << "x" << shape.vocabulary << " " << at::toString(shape.type)
          << ", way " << static_cast<int>(weights);
    }
  }
}

TEST(HeadMemory, IsLeftToTheNextWalkAndGivenBack) {
  CountingAllocator& allocator = counting();
  release_head_memory();
  const int64_t before = allocator.held;
  extra({64, 8, 20000, at::kFloat, 64 << 20}, Weights::known, "js");
  EXPECT_EQ(allocator.held, before);
  {
    Rows rows;
    rows.hidden = normal({64, 20000}, at::kFloat);
    HeadRequest request;
    request.entropy = true;
    head_statistics(rows, request);
  }
  EXPECT_EQ(allocator.held - before, 64 * 20000 * 4);
  release_head_memory();
  EXPECT_EQ(allocator.held, before);
}

}  // namespace
}  // namespace kullback::test
