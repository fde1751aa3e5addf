#include "kullback/report/decimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kullback {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<double> noise(std::size_t n, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(n);
  for (double& v : values) v = normal(random);
  return values;
}

bool rising(const std::vector<std::size_t>& indices) {
  return std::adjacent_find(indices.begin(), indices.end(), [](auto a, auto b) { return a >= b; }) == indices.end();
}

TEST(DecimateLine, KeepsShortSeriesWhole) {
  for (const std::size_t n : {0, 1, 2, 49, 500}) EXPECT_THAT(decimate_line(noise(n), {}, {}, 100), SizeIs(n));
}

TEST(DecimateLine, KeepsEndsAndExtremes) {
  for (const std::size_t n : {501UL, 1000UL, 99'999UL}) {
    const auto y = noise(n);
    const auto kept = decimate_line(y, {}, {}, 100);
    EXPECT_LE(kept.size(), 500U);
    EXPECT_TRUE(rising(kept));
    EXPECT_EQ(kept.front(), 0U);
    EXPECT_EQ(kept.back(), n - 1);
    EXPECT_THAT(kept, Contains(static_cast<std::size_t>(std::max_element(y.begin(), y.end()) - y.begin())));
    EXPECT_THAT(kept, Contains(static_cast<std::size_t>(std::min_element(y.begin(), y.end()) - y.begin())));
  }
}

TEST(DecimateLine, KeepsTheIntervalsExtremes) {
  const std::vector<double> y(10'000, 1.0);
  std::vector<double> low(10'000, 0.5), high(10'000, 1.5);
  low[1234] = -7;
  high[8765] = 7;
  const auto kept = decimate_line(y, low, high, 50);
  EXPECT_THAT(kept, Contains(1234U));
  EXPECT_THAT(kept, Contains(8765U));
}

TEST(DecimateLine, KeepsGaps) {
  auto y = noise(10'000);
  for (std::size_t i = 4000; i < 4500; ++i) y[i] = std::numeric_limits<double>::quiet_NaN();
  const auto kept = decimate_line(y, {}, {}, 50);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [&](auto i) { return std::isnan(y[i]); }));
  const std::vector<double> nothing(10'000, std::numeric_limits<double>::quiet_NaN());
  EXPECT_LE(decimate_line(nothing, {}, {}, 50).size(), 250U);
}

TEST(DecimatePoints, KeepsSmallCloudsWholeButForWhatIsNotFinite) {
  EXPECT_THAT(decimate_points(std::vector<double>{1, 1, 2}, std::vector<double>{1, 1, std::nan("")}, 10), SizeIs(2));
  EXPECT_THAT(decimate_points({}, {}, 10), IsEmpty());
}

TEST(DecimatePoints, ThinsToTheLimitAndKeepsOutliers) {
  auto x = noise(100'000, 1), y = noise(100'000, 2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 200 + 20 * x[i];
    y[i] = 200 + 20 * y[i];
  }
  x[77'777] = 600;
  const auto kept = decimate_points(x, y, 1000);
  EXPECT_LE(kept.size(), 1000U);
  EXPECT_GT(kept.size(), 700U);
  EXPECT_TRUE(rising(kept));
  EXPECT_THAT(kept, Contains(77'777U));
  // Two thirds of a normal cloud lie within one deviation along an axis; the thinned one must look like it.
  const auto near = std::count_if(kept.begin(), kept.end(), [&](auto i) { return std::abs(x[i] - 200) < 20; });
  EXPECT_GT(near, static_cast<long>(kept.size() / 2));
}

TEST(DecimatePoints, AllInOnePlace) {
  const std::vector<double> same(5000, 3.0);
  const auto kept = decimate_points(same, same, 100);
  EXPECT_LE(kept.size(), 100U);
  EXPECT_GE(kept.size(), 1U);
}

}  // namespace
}  // namespace kullback
