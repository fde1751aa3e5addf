#pragma once

#include <span>

#include "kullback/divergence/divergence.h"

namespace kullback {

/// D(p||q) of two Dirichlet laws with these concentrations (> 0, one an outcome), in closed form: the KLs and their sums,
/// alpha and its relatives, chi2, hellinger, renyi, bhattacharyya. +inf where the integral diverges.
double between_dirichlets(const Divergence& divergence, std::span<const double> p, std::span<const double> q);

}  // namespace kullback
