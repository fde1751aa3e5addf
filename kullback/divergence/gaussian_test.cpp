#include "kullback/divergence/gaussian.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/divergence/between_vectors.h"
#include "kullback/divergence/dirichlet.h"

namespace kullback {
namespace {

using at::Tensor;
using Numbers = std::vector<double>;

const std::vector<std::string> kClosed = {"kl",        "reverse-kl",  "jeffreys",     "symmetric-kl:0.3",
                                          "alpha:0.4", "alpha:1",     "amari:0.2",    "cressie-read:0.2",
                                          "chi2",      "neyman-chi2", "hellinger",    "tsallis:1.3",
                                          "renyi:0.7", "renyi:1.2",   "bhattacharyya"};

Tensor numbers(const Numbers& x) { return at::tensor(x, at::kDouble); }

/// A law's cells on a fine grid, as a probability vector: what the closed forms are held against.
Numbers cells(const std::function<double(double)>& log_density, double from, double to, int count) {
  Numbers p;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    p.push_back(std::exp(log_density(from + (to - from) * (i + 0.5) / count)));
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return p;
}

Numbers normal_cells(double mean, double variance) {
  return cells([=](double x) { return -(x - mean) * (x - mean) / (2 * variance); }, -30, 30, 60000);
}

TEST(Gaussians, AgreeWithIntegrals) {
  const Gaussian p{numbers({0.3}), numbers({1.2})}, q{numbers({-0.5}), numbers({1.5})};
  const Numbers p_cells = normal_cells(0.3, 1.2), q_cells = normal_cells(-0.5, 1.5);
  for (const std::string& name : kClosed) {
    EXPECT_NEAR(between_gaussians(divergence(name), p, q), between(divergence(name), p_cells, q_cells), 1e-8) << name;
  }
  EXPECT_NEAR(between_gaussians(divergence("cauchy-schwarz"), p, q),
              between(divergence("cauchy-schwarz"), p_cells, q_cells), 1e-8);
  const Gaussian moved{numbers({1.1}), numbers({1.2})};
  EXPECT_NEAR(between_gaussians(divergence("tv"), p, moved), between(divergence("tv"), p_cells, normal_cells(1.1, 1.2)),
              1e-6);
}

TEST(Gaussians, FullAndDiagonalAgreeAndRotationsDoNotMatter) {
  const Tensor variances = numbers({0.5, 2, 1.3}), others = numbers({0.7, 1.6, 1.1});
  const Gaussian p{numbers({1, 0, -1}), variances}, q{numbers({0.5, 0.2, 0}), others};
  const auto [rotation, rest] = at::linalg_qr(at::randn({3, 3}, at::kDouble));
  const auto rotated = [&, r = rotation](const Gaussian& g) {
    const Tensor covariance = r.matmul(at::diag(g.covariance)).matmul(r.t());
    return Gaussian{r.matmul(g.mean), (covariance + covariance.t()) / 2};
  };
  for (const std::string& name : kClosed) {
    const double diagonal = between_gaussians(divergence(name), p, q);
    EXPECT_NEAR(between_gaussians(divergence(name), rotated(p), rotated(q)), diagonal, 1e-10) << name;
    EXPECT_NEAR(between_gaussians(divergence(name), p, {q.mean, at::diag(q.covariance)}), diagonal, 1e-10) << name;
  }
  EXPECT_NEAR(wasserstein_2(rotated(p), rotated(q)), wasserstein_2(p, q), 1e-10);
  EXPECT_NEAR(wasserstein_2({numbers({0}), numbers({4})}, {numbers({3}), numbers({0.25})}), std::sqrt(9 + 2.25), 1e-12);
  EXPECT_NEAR(between_gaussians(divergence("kl"), {numbers({1}), numbers({1})}, {numbers({0}), numbers({1})}), 0.5,
              1e-15);
}

TEST(Gaussians, AreInfiniteWhereTheIntegralDiverges) {
  const Gaussian wide{numbers({0}), numbers({3})}, narrow{numbers({0}), numbers({1})};
  EXPECT_EQ(between_gaussians(divergence("chi2"), wide, narrow), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isfinite(between_gaussians(divergence("chi2"), narrow, wide)));
}

TEST(Gaussians, BadOnesAreNamed) {
  const auto message = [](const Gaussian& p, const Gaussian& q, const char* name) -> std::string {
    try {
      between_gaussians(divergence(name), p, q);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Gaussian good{numbers({0, 0}), numbers({1, 1})};
  EXPECT_THAT(message(good, {numbers({0, 0}), numbers({1, -1})}, "kl"),
              testing::HasSubstr("second Gaussian: the covariance is not positive definite"));
  EXPECT_THAT(message(good, {numbers({0}), numbers({1})}, "kl"), testing::HasSubstr("2 and 1 dimensions"));
  EXPECT_THAT(message(good, {numbers({0, 0}), numbers({1, 2, 0, 1}).view({2, 2})}, "kl"),
              testing::HasSubstr("not symmetric"));
  EXPECT_THAT(message(good, good, "js"), testing::HasSubstr("no closed form"));
}

TEST(Dirichlets, AgreeWithIntegralsOfBetaLaws) {
  const Numbers p = {2.5, 3}, q = {3.2, 2.2};
  const auto beta_cells = [](const Numbers& a) {
    return cells([&](double x) { return (a[0] - 1) * std::log(x) + (a[1] - 1) * std::log1p(-x); }, 0, 1, 200000);
  };
  for (const std::string& name : kClosed) {
    EXPECT_NEAR(between_dirichlets(divergence(name), p, q), between(divergence(name), beta_cells(p), beta_cells(q)),
                1e-6)
        << name;
    EXPECT_NEAR(between_dirichlets(divergence(name), p, p), 0, 1e-13) << name;
  }
  EXPECT_EQ(between_dirichlets(divergence("renyi:5"), Numbers{1, 1}, Numbers{3, 3}),
            std::numeric_limits<double>::infinity());
  EXPECT_THROW(between_dirichlets(divergence("kl"), Numbers{0, 1}, q), Error);
}

}  // namespace
}  // namespace kullback
