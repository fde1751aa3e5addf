#include "kullback/distill/kd.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/distill/sequence_level.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

TEST(Kd, GoldenFixture) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES) + "/kd.json");
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << r.name << ": " << r.largest_difference << " at " << r.at;
  EXPECT_EQ(report.results.size(), 38u);
}

TEST(Kd, NothingIsReadWhereTheMaskIsFalse) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  at::Tensor student = at::tensor({nan, nan, 1.0, 2.0}, at::kDouble).view({2, 2}).requires_grad_(true);
  Rows s, t;
  s.hidden = student;
  t.hidden = at::tensor({nan, nan, 2.0, 1.0}, at::kDouble).view({2, 2});
  const at::Tensor mask = at::tensor({0, 1}, at::kLong).to(at::kBool).view({1, 2});
  const KdLoss loss = kd_loss(s, t, {}, mask, {});
  loss.loss.backward();
  EXPECT_EQ(loss.per_token[0][0].item<double>(), 0);
  EXPECT_GT(loss.loss.item<double>(), 0);
  EXPECT_EQ(student.grad()[0].abs().sum().item<double>(), 0);
  EXPECT_NE(student.grad()[1].abs().sum().item<double>(), 0);
}

TEST(Kd, BatchesOfOneStepAddUpToTheStep) {
  Rows s, t;
  s.hidden = at::randn({8, 5}, at::kDouble);
  t.hidden = at::randn({8, 5}, at::kDouble);
  const at::Tensor mask = at::ones({2, 4}, at::kBool);
  const double whole = kd_loss(s, t, {}, mask, {}).loss.item<double>();
  double parts = 0;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, 5}}) {
    Rows a = s, b = t;
    a.hidden = s.hidden.narrow(0, first, count);
    b.hidden = t.hidden.narrow(0, first, count);
    parts += kd_loss(a, b, {}, at::ones({1, count}, at::kBool), {}, 8).loss.item<double>();
  }
  EXPECT_NEAR(parts, whole, 1e-12);
}

TEST(BeamSearch, OfWidthAllFindsTheLikeliest) {
  const auto next = [](std::span<const int64_t> tokens) {
    return tokens.empty() ? std::vector<double>{std::log(0.4), std::log(0.6)}
                          : std::vector<double>{std::log(0.9), std::log(0.1)};
  };
  const auto found = beam_search(next, 10, 2, 7);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].tokens, (std::vector<int64_t>{1, 0}));
  EXPECT_NEAR(found[0].logp, std::log(0.54), 1e-12);
}

}  // namespace
}  // namespace kullback
