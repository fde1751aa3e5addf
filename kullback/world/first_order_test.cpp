#include "kullback/world/first_order.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/world/law.h"

namespace kullback {
namespace {

TEST(FirstOrderWorld, TokensKlAtItsOwnVisitsIsTheResponsesKl) {
  const FirstOrderWorld world = first_order_world(3);
  const at::Tensor student = world.rows(world.start), q = visits(world, student), p = visits(world, world.teacher);
  EXPECT_NEAR(p.sum().item<double>(), 4, 1e-12);
  EXPECT_NEAR(q.sum().item<double>(), 4, 1e-12);
  const SequenceDistances d = sequence_distances(world, student);
  EXPECT_NEAR(expected_divergence(world, divergence("kl").from_reference(), student, p).item<double>(), d.forward_kl,
              1e-12);
  EXPECT_NEAR(expected_divergence(world, divergence("kl").from_policy(), student, q).item<double>(), d.reverse_kl,
              1e-12);
}

TEST(FirstOrderWorld, StudentSeesOnlyTheTokenBefore) {
  const FirstOrderWorld world = first_order_world(0);
  const at::Tensor rows = world.rows(world.start);
  for (int64_t prefix = 1; prefix < world.space.prefixes(); ++prefix) {
    const int64_t last = prefix_tokens(world.space, prefix).back();
    EXPECT_TRUE(rows[prefix].equal(world.start[1 + last])) << prefix;
  }
  EXPECT_TRUE(rows[0].equal(world.start[0]));
}

TEST(FirstOrderWorld, TrainingFindsWhatTheTeacherDoesOnAverage) {
  // Forward KL on the teacher's responses: the optimum is the teacher's law of the next token given the last one alone.
  const FirstOrderWorld world = first_order_world(1);
  const at::Tensor p = visits(world, world.teacher);
  const at::Tensor trained = train_student(world, [&](const at::Tensor& rows, int64_t) {
    return expected_divergence(world, divergence("kl").from_reference(), rows, p);
  });
  const at::Tensor joint = p.unsqueeze(1) * world.teacher.exp();
  at::Tensor counts = at::zeros({5, 4}, at::kDouble).index_add(0, world.previous, joint);
  const at::Tensor best = counts / counts.sum(1, true);
  EXPECT_LT((at::softmax(trained, -1) - world.rows(best)).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace kullback
