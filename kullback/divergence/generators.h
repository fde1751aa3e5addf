#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kullback/divergence/row_kernels.h"

namespace kullback {

/// A convex function f on (0, inf) with f(1) = 0, from which D_f(p||q) = sum_y q(y) f(p(y)/q(y)). A token that only q
/// holds adds q f(0), one that only p holds adds p lim f(u)/u, one that neither holds adds 0.
struct Generator {
  std::function<double(double)> value;       ///< f(u), u > 0
  std::function<double(double)> derivative;  ///< f'(u), u > 0; any subgradient at a kink
  double at_zero = 0;                        ///< f(0) = lim f(u) for u -> 0; may be infinite
  double slope_at_infinity = 0;              ///< lim f(u) / u for u -> inf; may be infinite
  /// f*(t) = sup over u >= 0 of (u t - f(u)); left empty, it is found by solving f'(u) = t.
  std::function<double(double)> conjugate = {};
};

/// f*(t): the generator's own, or found from f' by bisection to the last digits. +inf beyond slope_at_infinity.
double conjugate(const Generator& generator, double t);

namespace detail {

/// An f-divergence that the library knows.
struct KnownGenerator {
  Generator generator;
  std::string formula;                 // of f(u), in words of plain text
  std::optional<Term> from_reference;  // vector code for D(reference || policy), where there is some
  std::optional<Term> from_policy;     // and for D(policy || reference)
};

KnownGenerator symmetric_generator(double weight, double reverse_weight);  // weight KL(p||q) + reverse_weight KL(q||p)
KnownGenerator js_generator(double weight);                                // weight of p in the mixture, in (0, 1)
KnownGenerator skew_generator(double alpha);                               // KL(p || alpha p + (1 - alpha) q)
KnownGenerator skew_reverse_generator(double alpha);                       // KL(q || alpha q + (1 - alpha) p)
KnownGenerator alpha_generator(double alpha,
                               double scale = 1);  // scale (u^alpha - alpha u - 1 + alpha) / (alpha (alpha - 1))
KnownGenerator hellinger_generator();              // (sqrt u - 1)^2
KnownGenerator total_variation_generator();        // |u - 1| / 2
KnownGenerator le_cam_generator();                 // (u - 1)^2 / (u + 1)

}  // namespace detail
}  // namespace kullback
