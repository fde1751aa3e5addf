#include "kullback/divergence/row_blocks.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace kullback {
namespace {

using at::Tensor;

Tensor forward_kl(const Tensor& student, const Tensor& teacher, int64_t) {
  const Tensor p = at::log_softmax(teacher, 1);
  return (p.exp() * (p - at::log_softmax(student, 1))).sum(1);
}

struct World {
  Rows student, teacher;
  Tensor weights;
};

World world(int64_t rows, bool trained_head) {
  at::manual_seed(3);
  World w;
  w.student = {.hidden = at::randn({rows, 5}, at::kDouble).requires_grad_(true),
               .weight = at::randn({17, 5}, at::kDouble).requires_grad_(trained_head),
               .bias = at::randn({17}, at::kDouble).requires_grad_(trained_head),
               .temperature = 1.5,
               .softcap = 3,
               .vocabulary = 13};
  w.teacher = {.hidden = at::randn({rows, 3}, at::kDouble), .weight = at::randn({13, 3}, at::kDouble), .bias = {}};
  w.weights = at::rand({rows}, at::kDouble);
  return w;
}

/// The head computes the same divergence by code of its own.
TEST(RowBlocks, AgreeWithTheHeadWhateverTheBlock) {
  for (const int64_t rows : {0, 1, 7, 64}) {
    for (const bool trained_head : {false, true}) {
      World w = world(rows, trained_head);
      HeadRequest request;
      request.divergences = {divergence("kl").from_reference()};
      HeadStatistics upstream;
      upstream.divergences = {w.weights};
      const HeadLoss expected = head_loss(w.student, w.teacher, request, upstream);
      expected.loss.backward();
      std::vector<Tensor> wanted;
      for (Tensor* t : {&w.student.hidden, &w.student.weight, &w.student.bias}) {
        wanted.push_back(t->requires_grad() ? t->grad().clone() : Tensor());
        t->mutable_grad().reset();
      }
      for (const int64_t memory : {int64_t{1}, int64_t{20'000}, int64_t{1} << 30}) {
        const RowBlockLoss loss = row_block_loss(w.student, w.teacher, forward_kl, w.weights, memory);
        EXPECT_NEAR(loss.loss.item<double>(), expected.loss.item<double>(), 1e-12);
        EXPECT_TRUE(at::allclose(loss.values, expected.statistics.divergences[0], 1e-10, 1e-12));
        (2 * loss.loss).backward();
        size_t i = 0;
        for (Tensor* t : {&w.student.hidden, &w.student.weight, &w.student.bias}) {
          if (t->requires_grad()) {
            EXPECT_TRUE(at::allclose(t->grad(), 2 * wanted[i], 1e-9, 1e-12)) << i;
          }
          t->mutable_grad().reset();
          ++i;
        }
      }
    }
  }
}

TEST(RowBlocks, ARowOfWeightZeroGivesNothingEvenWhenItIsNotANumber) {
  World w = world(3, false);
  w.student.hidden = w.student.hidden.detach().clone();
  w.student.hidden[1] = std::numeric_limits<double>::quiet_NaN();
  w.student.hidden.requires_grad_(true);
  w.weights[1] = 0;
  const RowBlockLoss loss = row_block_loss(w.student, w.teacher, forward_kl, w.weights);
  loss.loss.backward();
  EXPECT_TRUE(std::isfinite(loss.loss.item<double>()));
  EXPECT_TRUE(at::isfinite(w.student.hidden.grad()).all().item<bool>());
  EXPECT_EQ(w.student.hidden.grad()[1].abs().sum().item<double>(), 0);
}

TEST(RowBlocks, SeveralNumbersARowEachHaveTheirWeight) {
  World w = world(4, false);
  const auto two = [](const Tensor& student, const Tensor& teacher, int64_t first) {
    const Tensor kl = forward_kl(student, teacher, first);
    return at::stack({kl, kl * kl}, 1);
  };
  const Tensor weights = at::rand({4, 2}, at::kDouble);
  const RowBlockLoss loss = row_block_loss(w.student, w.teacher, two, weights, 1);
  EXPECT_EQ(loss.values.sizes(), (at::IntArrayRef{4, 2}));
  EXPECT_NEAR(loss.loss.item<double>(), (loss.values * weights).sum().item<double>(), 1e-13);
  loss.loss.backward();
  EXPECT_GT(w.student.hidden.grad().abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace kullback
