#include "kullback/measure/kl_estimators.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

TEST(KlEstimators, GoldenFixture) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES) + "/kl-estimators.json");
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << r.name << ": " << r.largest_difference << " at " << r.at;
  EXPECT_EQ(report.results.size(), 27u);
}

TEST(KlEstimators, EqualModelsGiveExactlyZero) {
  Rows rows;
  rows.hidden = at::randn({3, 50}) * 5;
  EXPECT_EQ(exact_kl(rows, rows).abs().max().item<double>(), 0);
  const at::Tensor u = at::zeros({4}, at::kDouble);
  for (const auto e :
       {KlEstimateOptions::Estimator::k1, KlEstimateOptions::Estimator::k2, KlEstimateOptions::Estimator::k3}) {
    EXPECT_EQ(kl_from_log_ratio(e, u).abs().max().item<double>(), 0);
  }
}

TEST(KlEstimators, StandardErrorIsThatOfTheMean) {
  KlEstimateOptions o;
  o.estimator = KlEstimateOptions::Estimator::k1;
  const at::Tensor policy = at::tensor({1.0, 2.0, 4.0}, at::kDouble).view({3, 1}), zero = at::zeros_like(policy);
  const KlEstimate e = kl_estimate(policy, zero, at::ones_like(policy, at::kBool), o);
  EXPECT_NEAR(e.value.item<double>(), 7.0 / 3, 1e-14);
  EXPECT_NEAR(e.standard_error, std::sqrt((16.0 / 9 + 1.0 / 9 + 25.0 / 9) / 2 / 3), 1e-14);
}

TEST(KlEstimators, OptionsThatContradictEachOtherAreErrors) {
  const at::Tensor x = at::zeros({1, 1}, at::kDouble), mask = at::ones({1, 1}, at::kBool);
  KlEstimateOptions o;
  EXPECT_THROW(kl_estimate(x, x, mask, o), Error);
  o.estimator = KlEstimateOptions::Estimator::k3;
  o.ratio = true;
  EXPECT_THROW(kl_estimate(x, x, mask, o), Error);
}

}  // namespace
}  // namespace kullback
