#include "kullback/divergence/divergence.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/divergence/between_vectors.h"

namespace kullback {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Law = std::vector<double>;

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Law random_law(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::gamma_distribution<double> gamma(0.7);
  Law p(size);
  for (double& x : p) x = gamma(random) + 1e-12;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

const std::vector<std::string> kGenerated = {"kl",
                                             "reverse-kl",
                                             "jeffreys",
                                             "symmetric-kl:0.3",
                                             "js",
                                             "js:0.2",
                                             "skew-kl:0.1",
                                             "skew-kl:0.8",
                                             "skew-reverse-kl:0.3",
                                             "alpha:0.5",
                                             "alpha:-1.5",
                                             "alpha:3",
                                             "alpha:1",
                                             "alpha:0",
                                             "alpha:0.9",
                                             "amari:0.4",
                                             "cressie-read",
                                             "chi2",
                                             "neyman-chi2",
                                             "hellinger",
                                             "tv",
                                             "le-cam",
                                             "tsallis:2"};

class EachGenerator : public testing::TestWithParam<std::string> {
 protected:
  const Divergence d_ = divergence(GetParam());
  const Generator& f_ = d_.generator();
};

TEST_P(EachGenerator, IsZeroAndConvexAround1) {
  EXPECT_NEAR(f_.value(1), 0, 1e-12);
  for (double u = 0.1; u < 8; u *= 1.3) {
    EXPECT_LE(f_.value(u), (f_.value(u * 0.9) + f_.value(u * 1.1)) / 2 + 1e-12) << u;
  }
}

TEST_P(EachGenerator, DerivativeIsThatOfFiniteDifferences) {
  for (const double u : {1e-3, 0.2, 0.9, 1.1, 3.0, 50.0}) {
    const double h = 1e-6 * u;
    EXPECT_NEAR(f_.derivative(u), (f_.value(u + h) - f_.value(u - h)) / (2 * h),
                1e-5 * std::max(1.0, std::abs(f_.derivative(u))))
        << u;
  }
}

TEST_P(EachGenerator, LimitsAreApproached) {
  if (std::isinf(f_.at_zero)) {
    EXPECT_GT(f_.value(1e-200), 1e2);
  } else {
    EXPECT_NEAR(f_.value(1e-300), f_.at_zero, 1e-2 * std::max(1.0, std::abs(f_.at_zero)));
  }
  if (std::isinf(f_.slope_at_infinity)) {
    EXPECT_GT(f_.value(1e100) / 1e100, 5);
  } else {
    EXPECT_NEAR(f_.value(1e300) / 1e300, f_.slope_at_infinity, 2e-2 * std::max(1.0, f_.slope_at_infinity));
  }
}

TEST_P(EachGenerator, ConjugateMeetsFenchelsEquality) {
  for (const double u : {1e-2, 0.3, 0.9, 1.2, 4.0, 100.0}) {
    const double t = f_.derivative(u);
    EXPECT_NEAR(f_.value(u) + conjugate(f_, t), u * t, 1e-9 * std::max(1.0, std::abs(u * t))) << u;
  }
  // And Young's inequality everywhere else.
  for (const double t : {-30.0, -2.0, -0.3, 0.1, 0.4}) {
    for (const double u : {1e-3, 0.5, 1.0, 7.0})
      EXPECT_GE(f_.value(u) + conjugate(f_, t), u * t - 1e-9) << u << ", " << t;
  }
  if (!std::isinf(f_.slope_at_infinity)) {
    EXPECT_EQ(conjugate(f_, f_.slope_at_infinity + 1), kInfinity);
  }
}

TEST_P(EachGenerator, KernelsAgreeWithTheDefinition) {
  for (const size_t size : {1, 2, 7, 8, 9, 31, 33, 1000}) {
    const Law p = random_law(size, 1), q = random_law(size, 2);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += q[i] * f_.value(p[i] / q[i]);
    EXPECT_NEAR(between(d_, p, q), sum, 1e-11 * std::max(1.0, sum)) << size;
  }
}

TEST_P(EachGenerator, ZerosTakeTheLimits) {
  const Law p = {0.5, 0.5, 0, 0}, q = {0.25, 0, 0.75, 0};
  const double right = 0.25 * f_.value(2) + 0.5 * f_.slope_at_infinity + 0.75 * f_.at_zero;
  if (std::isinf(right)) {
    EXPECT_EQ(between(d_, p, q), kInfinity);
  } else {
    EXPECT_NEAR(between(d_, p, q), right, 1e-13);
  }
  const Law one = {1, 0}, other = {0, 1};
  const double apart = f_.slope_at_infinity + f_.at_zero;
  if (std::isinf(apart)) {
    EXPECT_EQ(between(d_, one, other), kInfinity);
  } else {
    EXPECT_NEAR(between(d_, one, other), apart, 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachGenerator, testing::ValuesIn(kGenerated), [](const auto& that) {
  std::string name = that.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Divergence, KnownValues) {
  const Law p = {0.5, 0.5}, q = {0.25, 0.75};
  const auto d = [&](const char* name) { return between(divergence(name), p, q); };
  EXPECT_NEAR(d("kl"), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-15);
  EXPECT_NEAR(d("tv"), 0.25, 1e-15);
  EXPECT_NEAR(d("chi2"), 1.0 / 4 + 1.0 / 12, 1e-15);
  EXPECT_NEAR(d("neyman-chi2"), 0.25, 1e-15);
  EXPECT_NEAR(d("le-cam"), 0.0625 / 0.75 + 0.0625 / 1.25, 1e-15);
  EXPECT_NEAR(d("renyi:2"), std::log(4.0 / 3), 1e-15);
  EXPECT_NEAR(d("tsallis:2"), 1.0 / 3, 1e-15);
  EXPECT_NEAR(d("bhattacharyya"), -std::log(std::sqrt(0.125) + std::sqrt(0.375)), 1e-15);
  EXPECT_NEAR(d("cauchy-schwarz"), -std::log(0.25 / (0.5 * 0.625)), 1e-15);
  EXPECT_NEAR(d("density-power:1"), 0.125, 1e-15);
  EXPECT_NEAR(d("gamma:1"), 0.5 * std::log(0.5) - std::log(0.5) + 0.5 * std::log(0.625), 1e-15);
  EXPECT_NEAR(d("bregman:squared"), 0.125, 1e-15);
  EXPECT_NEAR(d("bregman:itakura-saito"), 2 - std::log(2.0) - 1 + 2.0 / 3 - std::log(2.0 / 3) - 1, 1e-14);
  EXPECT_NEAR(d("wasserstein-1"), 0.25, 1e-15);
  EXPECT_NEAR(d("alpha:0.5"), 2 * d("hellinger"), 1e-14);
  EXPECT_NEAR(d("alpha:2"), d("chi2") / 2, 1e-15);
  EXPECT_NEAR(d("amari:-1"), d("kl"), 1e-15);
  EXPECT_NEAR(d("amari:0.2"), d("alpha:0.4"), 1e-15);
  EXPECT_NEAR(d("cressie-read:1"), d("alpha:2"), 1e-15);
  EXPECT_NEAR(between(divergence("js"), Law{1, 0}, Law{0, 1}), std::log(2.0), 1e-15);
}

TEST(Divergence, EveryOneIsZeroBetweenEquals) {
  for (const DivergenceInfo& info : known_divergences()) {
    for (const size_t size : {1, 3, 16, 17}) {
      const Law p = random_law(size, 3);
      EXPECT_NEAR(between(divergence(info.name), p, p), 0, 1e-14) << info.name;
    }
    Law one_hot = {0, 1, 0};
    EXPECT_EQ(between(divergence(info.name), one_hot, one_hot), 0) << info.name;
  }
}

TEST(Divergence, EveryOneIsDescribedAndNeverNan) {
  const std::vector<Law> laws = {{1, 0, 0}, {0, 1, 0}, {0.5, 0.5, 0}, {0, 0.5, 0.5}, {1e-300, 1, 0}, {0.2, 0.3, 0.5}};
  for (const DivergenceInfo& info : known_divergences()) {
    const Divergence d = divergence(info.name);
    EXPECT_FALSE(d.description().empty());
    for (const Law& p : laws) {
      for (const Law& q : laws) {
        const double value = between(d, p, q);
        EXPECT_GE(value, 0) << info.name;  // and so no NaN
      }
    }
  }
}

TEST(Divergence, LogitsMayBeMinusInfinityAndFarApart) {
  const Law a = {0, -1000, -kInfinity}, z = {-1000, 0, -kInfinity};
  EXPECT_NEAR(between_logits(divergence("kl"), a, z), 1000, 1e-12);
  EXPECT_NEAR(between_logits(divergence("renyi:0.5"), a, z), 2 * (500 - std::log(2.0)), 1e-10);
  EXPECT_NEAR(between_logits(divergence("js"), a, z), std::log(2.0), 1e-15);
  EXPECT_EQ(between_logits(divergence("kl"), Law{0, 0}, Law{0, -kInfinity}), kInfinity);
  EXPECT_THAT(message_of([&] {
                between_logits(divergence("kl"), Law{-kInfinity, -kInfinity}, Law{0, 0});
              }),
              testing::HasSubstr("-inf alone"));
}

TEST(Divergence, AUsersGeneratorIsTakenAtItsWord) {
  Generator f;
  f.value = [](double u) { return u * std::log(u); };
  f.derivative = [](double u) { return std::log(u) + 1; };
  f.at_zero = 0;
  f.slope_at_infinity = kInfinity;
  const Divergence mine = divergence("mine", f);
  const Law p = random_law(20, 5), q = random_law(20, 6);
  EXPECT_NEAR(between(mine, p, q), between(divergence("kl"), p, q), 1e-13);
  EXPECT_NEAR(conjugate(mine.generator(), 0.7), std::exp(-0.3), 1e-9);
  f.value = [](double u) { return u; };
  EXPECT_THAT(message_of([&] { divergence("bad", f); }), testing::HasSubstr("f(1) is 1"));
}

TEST(Divergence, BadNamesAndParametersAreNamed) {
  EXPECT_THAT(message_of([] { divergence("hellingr"); }), testing::HasSubstr("did you mean \"hellinger\""));
  EXPECT_THAT(message_of([] { divergence("js:1"); }), testing::HasSubstr("beta is '1' and must be in (0, 1)"));
  EXPECT_THAT(message_of([] { divergence("js:x"); }), testing::HasSubstr("'x'"));
  EXPECT_THAT(message_of([] { divergence("kl:2"); }), testing::HasSubstr("takes no parameter"));
  EXPECT_THAT(message_of([] { divergence("renyi:0"); }), testing::HasSubstr("> 0"));
  EXPECT_THAT(message_of([] { divergence("bregman:square"); }), testing::HasSubstr("squared"));
  EXPECT_EQ(divergence("skew_kl").name(), "skew-kl:0.1");
  EXPECT_EQ(divergence("triangular").name(), "le-cam");
}

TEST(Divergence, BadProbabilitiesAndCountsAreNamed) {
  const Divergence kl = divergence("kl");
  EXPECT_THAT(message_of([&] { between(kl, Law{0.5, 0.6}, Law{0.5, 0.5}); }), testing::HasSubstr("sum to 1.1"));
  EXPECT_THAT(message_of([&] {
                between(kl, Law{0.5, 0.5}, Law{1.5, -0.5});
              }),
              testing::HasSubstr("second law: probability 2 is -0.5"));
  EXPECT_THAT(message_of([&] {
                between(kl, Law{1}, Law{0.5, 0.5});
              }),
              testing::HasSubstr("1 outcomes and the second 2"));
  EXPECT_THAT(message_of([&] { between_counts(kl, Law{0, 0}, Law{1, 1}); }), testing::HasSubstr("counts nothing"));
  EXPECT_NEAR(between_counts(kl, Law{2, 2}, Law{1, 3}), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-15);
  EXPECT_NEAR(between_counts(kl, Law{1, 0}, Law{0, 1}, 1), std::log(2.0) / 3, 1e-15);
}

TEST(Transport, OnALineIsTheKnownSum) {
  const Law p = random_law(12, 7), q = random_law(12, 8);
  std::vector<double> positions(12), cost;
  std::mt19937 random(9);
  for (double& x : positions) x = std::uniform_real_distribution<double>(-3, 3)(random);
  for (const double x : positions) {
    for (const double y : positions) cost.push_back(std::abs(x - y));
  }
  EXPECT_NEAR(transport_cost(p, q, cost), between(line_divergence(positions), p, q), 1e-12);
}

TEST(Transport, TakesAnyCostAndSize) {
  // The assignment's optimum by trying all permutations.
  std::mt19937 random(10);
  std::vector<double> cost(25);
  for (double& c : cost) c = std::uniform_real_distribution<double>(0, 1)(random);
  std::vector<int> order = {0, 1, 2, 3, 4};
  double best = kInfinity;
  do {
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += cost[i * 5 + order[i]] / 5;
    best = std::min(best, sum);
  } while (std::ranges::next_permutation(order).found);
  EXPECT_NEAR(transport_cost(Law(5, 0.2), Law(5, 0.2), cost), best, 1e-12);
  EXPECT_NEAR(transport_cost(Law{1}, Law{0.25, 0.75}, Law{2, 4}), 3.5, 1e-15);
  EXPECT_THAT(message_of([] { transport_cost(Law{1}, Law{1}, Law{-1}); }), testing::HasSubstr("cost"));
}

}  // namespace
}  // namespace kullback
