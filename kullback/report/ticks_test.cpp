#include "kullback/report/ticks.h"

#include <cmath>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kullback {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const Range& range, Scale scale, int wanted, bool whole = false) {
  std::vector<std::string> result;
  for (const Tick& tick : axis_ticks(range, scale, wanted, whole)) result.push_back(tick.label);
  return result;
}

TEST(Ticks, RoundSteps) {
  EXPECT_THAT(labels({0, 1}, Scale::linear, 5), ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels({0, 10}, Scale::linear, 4), ElementsAre("0", "2.5", "5.0", "7.5", "10.0"));
  EXPECT_THAT(labels({-1.2, 1.1}, Scale::linear, 5), ElementsAre("−1.0", "−0.5", "0", "0.5", "1.0"));
  EXPECT_THAT(labels({0, 220}, Scale::linear, 5), ElementsAre("0", "50", "100", "150", "200"));
}

TEST(Ticks, CountsHaveWholeSteps) {
  EXPECT_THAT(labels({0, 3}, Scale::linear, 10, true), ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(labels({0, 10}, Scale::linear, 4, true), ElementsAre("0", "5", "10"));
}

TEST(Ticks, LargeAndSmallNumbers) {
  EXPECT_THAT(labels({0, 50'000}, Scale::linear, 5), ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
  EXPECT_THAT(labels({1e6, 1.2e6}, Scale::linear, 4), ElementsAre("1.00M", "1.05M", "1.10M", "1.15M", "1.20M"));
  EXPECT_THAT(labels({0, 5e-5}, Scale::linear, 3), ElementsAre("0", "2×10⁻⁵", "4×10⁻⁵"));
  EXPECT_THAT(labels({1000000.1, 1000000.3}, Scale::linear, 2), ElementsAre("1000000.1", "1000000.2", "1000000.3"));
}

TEST(Ticks, Logarithmic) {
  EXPECT_THAT(labels({1e-6, 1}, Scale::logarithmic, 4), ElementsAre("10⁻⁶", "10⁻⁴", "0.01", "1"));
  EXPECT_THAT(labels({1, 1000}, Scale::logarithmic, 5), ElementsAre("1", "10", "100", "1000"));
  EXPECT_THAT(labels({0.8, 30}, Scale::logarithmic, 5), ElementsAre("1", "2", "5", "10", "20"));
  EXPECT_THAT(labels({1, 1.5}, Scale::logarithmic, 5), ElementsAre("1.0", "1.1", "1.2", "1.3", "1.4", "1.5"));
}

TEST(Ticks, AlwaysInsideRisingAndToldApart) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-250, 250), unit(-1, 1);
  for (int round = 0; round < 5000; ++round) {
    const double a = unit(random) * std::pow(10, exponent(random)),
                 b = a + std::abs(unit(random)) * std::pow(10, exponent(random));
    const Range range = axis_range(a, b, Scale::linear, 0.05);
    ASSERT_LT(range.low, range.high);
    const auto ticks = axis_ticks(range, Scale::linear, 6);
    ASSERT_GE(ticks.size(), 2U) << a << " " << b;
    ASSERT_LE(ticks.size(), 15U) << a << " " << b;
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      const double room = 1e-5 * (range.high - range.low);
      EXPECT_GE(ticks[i].value, range.low - room);
      EXPECT_LE(ticks[i].value, range.high + room);
      if (i == 0) continue;
      EXPECT_GT(ticks[i].value, ticks[i - 1].value);
      if (range.high - range.low > 1e-9 * std::abs(range.high)) {
        EXPECT_NE(ticks[i].label, ticks[i - 1].label) << a << " " << b;
      }
    }
  }
}

TEST(AxisRange, AConstantGetsRoom) {
  const Range range = axis_range(0.693, 0.693, Scale::linear, 0);
  EXPECT_LT(range.low, 0.65);
  EXPECT_GT(range.high, 0.73);
  EXPECT_EQ(axis_range(0, 0, Scale::linear, 0).high, 1);
  const Range decades = axis_range(10, 10, Scale::logarithmic, 0);
  EXPECT_NEAR(decades.high / decades.low, 10, 1e-9);
}

TEST(AxisRange, StaysFinite) {
  const Range range = axis_range(-1.7e308, 1.7e308, Scale::linear, 0.1);
  EXPECT_TRUE(std::isfinite(range.high - range.low));
  const Range small = axis_range(5e-324, 1e-310, Scale::logarithmic, 0.1);
  EXPECT_GT(small.low, 0);
}

}  // namespace
}  // namespace kullback
