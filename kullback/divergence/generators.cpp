#include "kullback/divergence/generators.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace kullback {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The u >= 0 with f'(u) = t, by bisection on ln u; 0 or infinity where f' does not reach t.
double where_slope_is(const Generator& g, double t) {
  double low = -745, high = 709;  // ln of the smallest and the largest double
  if (g.derivative(std::exp(low)) >= t) return 0;
  if (g.derivative(std::exp(high)) <= t) return kInfinity;
  for (int step = 0; step < 200 && high - low > 1e-15 * (1 + std::abs(low)); ++step) {
    const double middle = (low + high) / 2;
    (g.derivative(std::exp(middle)) < t ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

}  // namespace

double conjugate(const Generator& g, double t) {
  if (t > g.slope_at_infinity) return kInfinity;
  if (g.conjugate) return g.conjugate(t);
  const double u = where_slope_is(g, t);
  if (u == 0) return -g.at_zero;
  if (!std::isinf(u)) return u * t - g.value(u);
  const double far = std::exp(300);  // the supremum is a limit; f is within rounding of its asymptote there
  return far * (t - g.derivative(far)) + (far * g.derivative(far) - g.value(far));
}

namespace detail {
namespace {

/// Lambert's W(e^y): the w > 0 with w + ln w = y.
double lambert_of_exp(double y) {
  double w = y > 1 ? y - std::log(y) : std::exp(y) / (1 + std::exp(y));
  for (int step = 0; step < 50; ++step) {
    const double change = w * (y - w - std::log(w)) / (1 + w);
    w = w + change > 0 ? w + change : w / 2;
    if (std::abs(change) <= 1e-16 * w) break;
  }
  return w;
}

Term term(Term::Kind kind, double first, double second, double scale, const Generator& g, double slope_at_one) {
  return {kind, first, second, scale, g.at_zero / scale + slope_at_one, g.slope_at_infinity / scale - slope_at_one};
}

/// The same divergence with its laws exchanged: u f(1/u).
Generator exchanged(const Generator& g) {
  Generator other;
  other.at_zero = g.slope_at_infinity;
  other.slope_at_infinity = g.at_zero;
  return other;
}

Generator symmetric_functions(double a, double b) {
  Generator g;
  g.value = [a, b](double u) { return (a * u - b) * std::log(u); };
  g.derivative = [a, b](double u) { return a * (std::log(u) + 1) - b / u; };
  g.at_zero = b > 0 ? kInfinity : 0;
  g.slope_at_infinity = a > 0 ? kInfinity : 0;
  if (a > 0 && b == 0) g.conjugate = [a](double t) { return a * std::exp(t / a - 1); };
  if (a == 0 && b > 0) g.conjugate = [b](double t) { return t < 0 ? -b - b * std::log(-t / b) : kInfinity; };
  if (a > 0 && a == b) {  // f'(u) = t where 1/u = W(e^(1 - t))
    g.conjugate = [a](double t) {
      const double w = lambert_of_exp(1 - t / a);
      return a * (1 / w - 1 - std::log(w));
    };
  }
  return g;
}

}  // namespace

KnownGenerator symmetric_generator(double a, double b) {
  KnownGenerator known;
  known.generator = symmetric_functions(a, b);
  const auto vector_term = [](double first, double second) {
    const Generator g = symmetric_functions(first, second);
    if (first == 1 && second == 0) return term(Term::Kind::kl, 0, 0, 1, g, 1);
    return term(Term::Kind::symmetric, first, second, 1, g, first - second);
  };
  known.from_reference = vector_term(a, b);
  known.from_policy = vector_term(b, a);
  if (b == 0)
    known.formula = a == 1 ? "u ln u" : fmt::format("{} u ln u", a);
  else if (a == 0)
    known.formula = b == 1 ? "-ln u" : fmt::format("-{} ln u", b);
  else
    known.formula = a == b && a == 1 ? "(u - 1) ln u" : fmt::format("({} u - {}) ln u", a, b);
  return known;
}

KnownGenerator js_generator(double w) {
  const double v = 1 - w;
  KnownGenerator known;
  known.formula = fmt::format("{0} u ln u - m ln m, m = {0} u + {1}", w, v);
  Generator& g = known.generator;
  g.value = [w, v](double u) { return w * u * std::log(u) - (w * u + v) * std::log(w * u + v); };
  g.derivative = [w, v](double u) { return w * (std::log(u) - std::log(w * u + v)); };
  g.at_zero = -v * std::log(v);
  g.slope_at_infinity = -w * std::log(w);
  g.conjugate = [w, v](double t) { return v * (std::log(v) - std::log1p(-w * std::exp(t / w))); };
  known.from_reference = term(Term::Kind::js, w, 0, 1, g, 0);
  known.from_policy = term(Term::Kind::js, v, 0, 1, exchanged(g), 0);
  return known;
}

namespace {

Generator skew_functions(double alpha) {
  Generator g;
  g.value = [alpha](double u) { return u * (std::log(u) - std::log(alpha * u + 1 - alpha)); };
  g.derivative = [alpha](double u) {
    const double m = alpha * u + 1 - alpha;
    return std::log(u / m) + (1 - alpha) / m;
  };
  g.at_zero = 0;
  g.slope_at_infinity = -std::log(alpha);
  return g;
}

Generator skew_reverse_functions(double alpha) {
  Generator g;
  g.value = [alpha](double u) { return -std::log((1 - alpha) * u + alpha); };
  g.derivative = [alpha](double u) { return -(1 - alpha) / ((1 - alpha) * u + alpha); };
  g.at_zero = -std::log(alpha);
  g.slope_at_infinity = 0;
  return g;
}

}  // namespace

KnownGenerator skew_generator(double alpha) {
  if (alpha == 0) return symmetric_generator(1, 0);
  if (alpha == 1) return symmetric_generator(0, 0);
  KnownGenerator known;
  known.formula = fmt::format("u ln(u / ({} u + {}))", alpha, 1 - alpha);
  known.generator = skew_functions(alpha);
  known.from_reference = term(Term::Kind::skew_kl, alpha, 0, 1, known.generator, 1 - alpha);
  known.from_policy = term(Term::Kind::skew_reverse_kl, alpha, 0, 1, skew_reverse_functions(alpha), alpha - 1);
  return known;
}

KnownGenerator skew_reverse_generator(double alpha) {
  if (alpha == 0) return symmetric_generator(0, 1);
  if (alpha == 1) return symmetric_generator(0, 0);
  KnownGenerator known;
  known.formula = fmt::format("-ln({} u + {})", 1 - alpha, alpha);
  known.generator = skew_reverse_functions(alpha);
  known.from_reference = term(Term::Kind::skew_reverse_kl, alpha, 0, 1, known.generator, alpha - 1);
  known.from_policy = term(Term::Kind::skew_kl, alpha, 0, 1, skew_functions(alpha), 1 - alpha);
  return known;
}

namespace {

Generator alpha_functions(double alpha, double scale) {
  Generator g;
  g.value = [alpha, scale](double u) {
    return scale * (std::pow(u, alpha) - alpha * u - 1 + alpha) / (alpha * (alpha - 1));
  };
  g.derivative = [alpha, scale](double u) { return scale * (std::pow(u, alpha - 1) - 1) / (alpha - 1); };
  g.at_zero = alpha > 0 ? scale / alpha : kInfinity;
  g.slope_at_infinity = alpha < 1 ? scale / (1 - alpha) : kInfinity;
  g.conjugate = [alpha, scale](double t) {
    const double power = 1 + (alpha - 1) * t / scale;  // u^(alpha - 1)
    if (power < 0 || (power == 0 && alpha > 1)) return alpha > 1 ? -scale / alpha : kInfinity;
    if (power == 0) return alpha < 0 ? -scale / alpha : kInfinity;
    return scale * (std::pow(power, alpha / (alpha - 1)) - 1) / alpha;
  };
  return g;
}

}  // namespace

KnownGenerator alpha_generator(double alpha, double scale) {
  if (alpha == 1) return symmetric_generator(scale, 0);
  if (alpha == 0) return symmetric_generator(0, scale);
  KnownGenerator known;
  known.generator = alpha_functions(alpha, scale);
  if (alpha == 2 && scale == 2)
    known.formula = "(u - 1)^2";
  else if (alpha == -1 && scale == 2)
    known.formula = "(1 - u)^2 / u";
  else
    known.formula = fmt::format("{} (u^{} - {} u - {}) / {}", scale, alpha, alpha, 1 - alpha, alpha * (alpha - 1));
  // Close to the limits 0 and 1 the float32 form would lose its digits to the division: those run in plain float64.
  if (std::abs(alpha) < 0.01 || std::abs(1 - alpha) < 0.01) return known;
  if (alpha == 0.5) {  // Hellinger's in other units
    known.from_reference = known.from_policy = term(Term::Kind::hellinger, 0, 0, 2 * scale, known.generator, 0);
    return known;
  }
  known.from_reference = term(Term::Kind::alpha, alpha, 0, scale, known.generator, 0);
  known.from_policy = term(Term::Kind::alpha, 1 - alpha, 0, scale, alpha_functions(1 - alpha, scale), 0);
  return known;
}

KnownGenerator hellinger_generator() {
  KnownGenerator known;
  known.formula = "(sqrt u - 1)^2";
  Generator& g = known.generator;
  g.value = [](double u) { return (std::sqrt(u) - 1) * (std::sqrt(u) - 1); };
  g.derivative = [](double u) { return 1 - 1 / std::sqrt(u); };
  g.at_zero = 1;
  g.slope_at_infinity = 1;
  g.conjugate = [](double t) { return t < 1 ? t / (1 - t) : kInfinity; };
  known.from_reference = known.from_policy = term(Term::Kind::hellinger, 0, 0, 1, g, 0);
  return known;
}

KnownGenerator total_variation_generator() {
  KnownGenerator known;
  known.formula = "|u - 1| / 2";
  Generator& g = known.generator;
  g.value = [](double u) { return std::abs(u - 1) / 2; };
  g.derivative = [](double u) { return u == 1 ? 0.0 : u > 1 ? 0.5 : -0.5; };
  g.at_zero = 0.5;
  g.slope_at_infinity = 0.5;
  g.conjugate = [](double t) { return std::max(t, -0.5); };
  known.from_reference = known.from_policy = term(Term::Kind::total_variation, 0, 0, 1, g, 0);
  return known;
}

KnownGenerator le_cam_generator() {
  KnownGenerator known;
  known.formula = "(u - 1)^2 / (u + 1)";
  Generator& g = known.generator;
  g.value = [](double u) { return (u - 1) * ((u - 1) / (u + 1)); };
  g.derivative = [](double u) { return (u - 1) / (u + 1) * ((u + 3) / (u + 1)); };
  g.at_zero = 1;
  g.slope_at_infinity = 1;
  g.conjugate = [](double t) { return t < -3 ? -1.0 : 4 - t - 4 * std::sqrt(1 - t); };
  known.from_reference = known.from_policy = term(Term::Kind::le_cam, 0, 0, 1, g, 0);
  return known;
}

}  // namespace detail
}  // namespace kullback
