#pragma once

#include <functional>

#include "kullback/divergence/divergence.h"

namespace kullback::detail {

/// What families of laws with closed forms know of a pair p, q.
struct ClosedForms {
  double kl = 0;                                  // KL(p||q)
  double reverse_kl = 0;                          // KL(q||p)
  std::function<double(double a)> log_power_sum;  // ln of the integral of p^a q^(1-a); +inf where it diverges
};

/// A divergence put together from them. Error, naming those that there are, for one that has no closed form of this kind.
double from_closed_forms(const Divergence& divergence, const ClosedForms& forms, const char* what);

}  // namespace kullback::detail
