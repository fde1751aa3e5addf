#include "kullback/divergence/gaussian.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/closed_forms.h"
#include "kullback/divergence/definition.h"

namespace kullback {
namespace {

using at::Tensor;

/// A symmetric positive definite matrix by its factor, or a positive diagonal.
class Positive {
 public:
  /// Nothing (see operator bool) if `matrix` is not positive definite.
  explicit Positive(const Tensor& matrix) : matrix_(matrix), diagonal_(matrix.dim() == 1) {
    if (diagonal_) {
      good_ = (matrix > 0).all().item<bool>();
      return;
    }
    const auto [factor, failed] = at::linalg_cholesky_ex(matrix);
    factor_ = factor;
    good_ = failed.item<int64_t>() == 0;
  }
  explicit operator bool() const { return good_; }

  double log_determinant() const {
    return diagonal_ ? matrix_.log().sum().item<double>() : 2 * factor_.diagonal().log().sum().item<double>();
  }
  /// d^T M^-1 d
  double quadratic(const Tensor& d) const {
    if (diagonal_) return (d.square() / matrix_).sum().item<double>();
    return at::linalg_solve_triangular(factor_, d.unsqueeze(1), /*upper=*/false).square().sum().item<double>();
  }
  /// tr(M^-1 other)
  double trace_of_ratio(const Tensor& other) const {
    if (diagonal_) return (other / matrix_).sum().item<double>();
    return at::cholesky_solve(other, factor_).diagonal().sum().item<double>();
  }

 private:
  Tensor matrix_, factor_;
  bool diagonal_, good_ = false;
};

Gaussian checked(const Gaussian& g, const char* which) {
  if (!g.mean.defined() || g.mean.dim() != 1 || g.mean.size(0) == 0) fail("{}: the mean must be a vector", which);
  Gaussian out{g.mean.detach().to(at::kDouble).contiguous(), g.covariance.detach().to(at::kDouble).contiguous()};
  const int64_t size = out.mean.size(0);
  const bool diagonal = out.covariance.dim() == 1;
  if (diagonal ? out.covariance.size(0) != size
               : out.covariance.dim() != 2 || out.covariance.size(0) != size || out.covariance.size(1) != size) {
    fail("{}: the covariance must have {} variances or {} x {} entries", which, size, size, size);
  }
  if (!at::isfinite(out.mean).all().item<bool>() || !at::isfinite(out.covariance).all().item<bool>())
    fail("{}: a number is not finite", which);
  if (!diagonal && !at::allclose(out.covariance, out.covariance.t(), 1e-9, 1e-12))
    fail("{}: the covariance is not symmetric", which);
  if (!Positive(out.covariance)) fail("{}: the covariance is not positive definite", which);
  return out;
}

/// Both with full covariances where one has it.
std::pair<Gaussian, Gaussian> pair_of(const Gaussian& first, const Gaussian& second) {
  Gaussian p = checked(first, "the first Gaussian"), q = checked(second, "the second Gaussian");
  if (p.mean.size(0) != q.mean.size(0)) fail("the Gaussians have {} and {} dimensions", p.mean.size(0), q.mean.size(0));
  if (p.covariance.dim() != q.covariance.dim()) {
    for (Gaussian* g : {&p, &q}) {
      if (g->covariance.dim() == 1) g->covariance = at::diag(g->covariance);
    }
  }
  return {p, q};
}

double kl(const Gaussian& p, const Gaussian& q) {
  const Positive first(p.covariance), second(q.covariance);
  return (second.trace_of_ratio(p.covariance) + second.quadratic(p.mean - q.mean) -
          static_cast<double>(p.mean.size(0)) + second.log_determinant() - first.log_determinant()) /
         2;
}

/// ln of the integral of p^a q^(1-a): finite where (1 - a) S_p + a S_q is positive definite.
double log_power_sum(const Gaussian& p, const Gaussian& q, double a) {
  const Positive mixed((1 - a) * p.covariance + a * q.covariance);
  if (!mixed) return std::numeric_limits<double>::infinity();
  return ((1 - a) * Positive(p.covariance).log_determinant() + a * Positive(q.covariance).log_determinant() -
          mixed.log_determinant() - a * (1 - a) * mixed.quadratic(p.mean - q.mean)) /
         2;
}

double cauchy_schwarz(const Gaussian& p, const Gaussian& q) {
  const Positive sum(p.covariance + q.covariance);
  return sum.log_determinant() - static_cast<double>(p.mean.size(0)) * std::log(2.0) + sum.quadratic(p.mean - q.mean) -
         (Positive(p.covariance).log_determinant() + Positive(q.covariance).log_determinant()) / 2;
}

}  // namespace

double between_gaussians(const Divergence& divergence, const Gaussian& first, const Gaussian& second) {
  const auto [p, q] = pair_of(first, second);
  const std::string& family = divergence.definition().family;
  if (family == "cauchy-schwarz") return std::max(0.0, cauchy_schwarz(p, q));
  if (family == "tv") {
    if (!p.covariance.equal(q.covariance))
      fail("tv between Gaussians has a closed form only where the covariances are equal");
    return std::erf(std::sqrt(Positive(p.covariance).quadratic(p.mean - q.mean) / 8));
  }
  const detail::ClosedForms forms{kl(p, q), kl(q, p), [p = p, q = q](double a) { return log_power_sum(p, q, a); }};
  return detail::from_closed_forms(divergence, forms, "Gaussians");
}

double wasserstein_2(const Gaussian& first, const Gaussian& second) {
  const auto [p, q] = pair_of(first, second);
  const double means = (p.mean - q.mean).square().sum().item<double>();
  if (p.covariance.dim() == 1)
    return std::sqrt(means + (p.covariance.sqrt() - q.covariance.sqrt()).square().sum().item<double>());
  const auto [values, vectors] = at::linalg_eigh(q.covariance);
  const Tensor root = vectors.matmul(values.clamp_min(0).sqrt().unsqueeze(1) * vectors.t());
  const Tensor inner = root.matmul(p.covariance).matmul(root);
  const double cross = at::linalg_eigvalsh((inner + inner.t()) / 2).clamp_min(0).sqrt().sum().item<double>();
  const double spread = (p.covariance.diagonal().sum() + q.covariance.diagonal().sum()).item<double>() - 2 * cross;
  return std::sqrt(means + std::max(0.0, spread));
}

}  // namespace kullback
