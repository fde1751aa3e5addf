#include "kullback/base/random.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace kullback {
namespace {

TEST(RandomStream, IsNamedBySeedPurposeAndIndex) {
  EXPECT_EQ(RandomStream(1, "order", 2).bits(), RandomStream(1, "order", 2).bits());
  EXPECT_NE(RandomStream(1, "order", 2).bits(), RandomStream(1, "order", 3).bits());
  EXPECT_NE(RandomStream(1, "order", 2).bits(), RandomStream(1, "other", 2).bits());
  EXPECT_NE(RandomStream(1, "order", 2).bits(), RandomStream(2, "order", 2).bits());
}

TEST(RandomStream, GoesOnFromASavedPosition) {
  RandomStream stream(7, "draws");
  for (int i = 0; i < 100; ++i) stream.normal();
  RandomStream again(7, "draws");
  again.seek(stream.position());
  EXPECT_EQ(stream.bits(), again.bits());
}

TEST(RandomStream, UniformMomentsAreRight) {
  RandomStream stream(3);
  const int n = 200000;
  double mean = 0, square = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    mean += u / n, square += u * u / n;
  }
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(square, 1.0 / 3, 0.005);
}

TEST(RandomStream, NormalMomentsAreRight) {
  RandomStream stream(4);
  const int n = 200000;
  double mean = 0, square = 0;
  for (int i = 0; i < n; ++i) {
    const double z = stream.normal();
    mean += z / n, square += z * z / n;
  }
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NEAR(square, 1, 0.02);
}

TEST(RandomStream, BelowReachesEveryValueEqually) {
  RandomStream stream(5);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[stream.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(RandomStream, ShuffleKeepsEveryItem) {
  std::vector<int> items(50), sorted(50);
  std::iota(items.begin(), items.end(), 0);
  sorted = items;
  RandomStream(6).shuffle(items);
  EXPECT_NE(items, sorted);
  std::sort(items.begin(), items.end());
  EXPECT_EQ(items, sorted);
}

}  // namespace
}  // namespace kullback
