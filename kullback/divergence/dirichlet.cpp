#include "kullback/divergence/dirichlet.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/closed_forms.h"

namespace kullback {
namespace {

double digamma(double x) { return at::digamma(at::scalar_tensor(x, at::kDouble)).item<double>(); }

/// ln of the multivariate beta function.
double log_beta(const std::vector<double>& a) {
  double sum = 0, logs = 0;
  for (const double x : a) {
    sum += x;
    logs += std::lgamma(x);
  }
  return logs - std::lgamma(sum);
}

double kl(const std::vector<double>& p, const std::vector<double>& q) {
  const double of_sum = digamma(std::accumulate(p.begin(), p.end(), 0.0));
  double value = log_beta(q) - log_beta(p);
  for (size_t i = 0; i < p.size(); ++i) value += (p[i] - q[i]) * (digamma(p[i]) - of_sum);
  return value;
}

double log_power_sum(const std::vector<double>& p, const std::vector<double>& q, double a) {
  std::vector<double> mixed(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    mixed[i] = a * p[i] + (1 - a) * q[i];
    if (mixed[i] <= 0) return std::numeric_limits<double>::infinity();
  }
  return log_beta(mixed) - a * log_beta(p) - (1 - a) * log_beta(q);
}

std::vector<double> checked(std::span<const double> a, const char* which) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] > 0) || std::isinf(a[i])) fail("{}: concentration {} is {} and must be > 0", which, i + 1, a[i]);
  }
  return {a.begin(), a.end()};
}

}  // namespace

double between_dirichlets(const Divergence& divergence, std::span<const double> first, std::span<const double> second) {
  const std::vector<double> p = checked(first, "the first Dirichlet"), q = checked(second, "the second Dirichlet");
  if (p.size() != q.size() || p.empty()) fail("the Dirichlets have {} and {} outcomes", p.size(), q.size());
  const detail::ClosedForms forms{kl(p, q), kl(q, p), [&](double a) { return log_power_sum(p, q, a); }};
  return detail::from_closed_forms(divergence, forms, "Dirichlets");
}

}  // namespace kullback
