#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/divergence.h"

namespace kullback {

/// A normal law. `covariance` [D,D] is full, [D] the variances of a diagonal one; computed in float64.
struct Gaussian {
  at::Tensor mean;        ///< [D]
  at::Tensor covariance;  ///< [D,D] symmetric positive definite, or [D] > 0
};

/// D(p||q) in closed form: the KLs and their sums, alpha and its relatives, chi2, hellinger, renyi, bhattacharyya,
/// cauchy-schwarz, and tv where the covariances are equal. +inf where the integral diverges (chi2, alpha and renyi beyond 1
/// may). Error for one that has no closed form, for sizes that differ and for what is no covariance.
double between_gaussians(const Divergence& divergence, const Gaussian& p, const Gaussian& q);

/// Wasserstein-2 distance (not squared) under the Euclidean cost: |m_p - m_q|^2 + tr(S_p + S_q - 2 (S_q^1/2 S_p S_q^1/2)^1/2),
/// its root. Gelbrich 1990.
double wasserstein_2(const Gaussian& p, const Gaussian& q);

}  // namespace kullback
