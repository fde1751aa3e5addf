#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kullback/base/error.h"
#include "kullback/divergence/definition.h"

namespace kullback::detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// ln sum_y exp(a ln p + b ln q), with 0^0 = 1 kept out: a token that either power excludes adds nothing.
double log_power_sum(std::span<const double> log_p, std::span<const double> log_q, double a, double b) {
  double max = -kInfinity;
  const auto exponent = [&](size_t i) {
    const double x = (a == 0 ? 0 : a * log_p[i]) + (b == 0 ? 0 : b * log_q[i]);
    return std::isnan(x) ? -kInfinity : x;
  };
  for (size_t i = 0; i < log_p.size(); ++i) max = std::max(max, exponent(i));
  if (std::isinf(max)) return max;
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) sum += std::exp(exponent(i) - max);
  return max + std::log(sum);
}

}  // namespace

double term_value(const Term& term, const TermSums& sums) {
  double value = sums.value;
  if (sums.any_policy_only) value += std::isinf(term.at_zero) ? kInfinity : sums.policy_only * term.at_zero;
  if (sums.any_reference_only) {
    value += std::isinf(term.slope_at_infinity) ? kInfinity : sums.reference_only * term.slope_at_infinity;
  }
  return std::isnan(value) ? value : std::max(0.0, value * term.scale);
}

PlainRow plain_generator(Generator g) {
  return [g = std::move(g)](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p,
                            std::span<double> of_q) {
    double sum = 0;
    for (size_t i = 0; i < log_p.size(); ++i) {
      const double p = std::exp(log_p[i]), q = std::exp(log_q[i]);
      double on_p = 0, on_q = 0;
      if (log_p[i] == -kInfinity && log_q[i] == -kInfinity) {
      } else if (log_p[i] == -kInfinity) {
        sum += std::isinf(g.at_zero) ? kInfinity : q * g.at_zero;
        on_q = q * g.at_zero;
      } else if (log_q[i] == -kInfinity) {
        sum += std::isinf(g.slope_at_infinity) ? kInfinity : p * g.slope_at_infinity;
        on_p = p * g.slope_at_infinity;
      } else {
        const double u = std::exp(std::clamp(log_p[i] - log_q[i], -700.0, 700.0));
        const double f = g.value(u), slope = g.derivative(u);
        // q f(u), by whichever of p and q is larger: the other may have underflowed.
        sum += u > 1 ? p * (f / u) : q * f;
        on_p = p * slope;
        on_q = u > 1 ? p * (f / u - slope) : q * (f - u * slope);
      }
      if (!of_p.empty()) of_p[i] = std::isfinite(on_p) ? on_p : 0;
      if (!of_q.empty()) of_q[i] = std::isfinite(on_q) ? on_q : 0;
    }
    return std::isnan(sum) ? sum : std::max(0.0, sum);
  };
}

PlainRow plain_renyi(double alpha, double scale) {
  return [alpha, scale](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p,
                        std::span<double> of_q) {
    if (alpha > 1) {
      for (size_t i = 0; i < log_p.size(); ++i) {
        if (log_q[i] == -kInfinity && log_p[i] > -kInfinity) {
          std::ranges::fill(of_p, 0);
          std::ranges::fill(of_q, 0);
          return kInfinity;
        }
      }
    }
    const double log_sum = log_power_sum(log_p, log_q, alpha, 1 - alpha);
    for (size_t i = 0; i < log_p.size(); ++i) {
      const bool both = log_p[i] > -kInfinity && log_q[i] > -kInfinity && std::isfinite(log_sum);
      const double share = both ? std::exp(alpha * log_p[i] + (1 - alpha) * log_q[i] - log_sum) : 0;
      if (!of_p.empty()) of_p[i] = scale * share * alpha / (alpha - 1);
      if (!of_q.empty()) of_q[i] = -scale * share;
    }
    return std::max(0.0, scale * log_sum / (alpha - 1));
  };
}

PlainRow plain_cauchy_schwarz() {
  return
      [](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p, std::span<double> of_q) {
        const double cross = log_power_sum(log_p, log_q, 1, 1);
        const double p_square = log_power_sum(log_p, log_q, 2, 0);
        const double q_square = log_power_sum(log_p, log_q, 0, 2);
        for (size_t i = 0; i < log_p.size(); ++i) {
          const double share = std::isinf(cross) ? 0 : std::exp(log_p[i] + log_q[i] - cross);
          const bool finite = !std::isinf(cross);
          if (!of_p.empty()) of_p[i] = finite ? 2 * (std::exp(2 * log_p[i] - p_square) - share) : 0;
          if (!of_q.empty()) of_q[i] = finite ? 2 * (std::exp(2 * log_q[i] - q_square) - share) : 0;
        }
        return std::max(0.0, p_square + q_square - 2 * cross);
      };
}

PlainRow plain_density_power(double b) {
  return [b](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p,
             std::span<double> of_q) {
    double sum = 0;
    for (size_t i = 0; i < log_p.size(); ++i) {
      const double pp = std::exp((1 + b) * log_p[i]), qq = std::exp((1 + b) * log_q[i]);
      const double pq = log_q[i] == -kInfinity ? 0 : std::exp(log_p[i] + b * log_q[i]);
      sum += (qq - pq) + (pp - pq) / b;
      if (!of_p.empty()) of_p[i] = (1 + 1 / b) * (pp - pq);
      if (!of_q.empty()) of_q[i] = (1 + b) * (qq - pq);
    }
    return std::isnan(sum) ? sum : std::max(0.0, sum);
  };
}

PlainRow plain_gamma(double g) {
  return [g](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p,
             std::span<double> of_q) {
    const double pp = log_power_sum(log_p, log_q, 1 + g, 0);
    const double qq = log_power_sum(log_p, log_q, 0, 1 + g);
    const double pq = log_power_sum(log_p, log_q, 1, g);
    const bool finite = std::isfinite(pq);
    for (size_t i = 0; i < log_p.size(); ++i) {
      const double share = finite && log_q[i] > -kInfinity ? std::exp(log_p[i] + g * log_q[i] - pq) : 0;
      if (!of_p.empty()) of_p[i] = finite ? (std::exp((1 + g) * log_p[i] - pp) - share) / g : 0;
      if (!of_q.empty()) of_q[i] = finite ? std::exp((1 + g) * log_q[i] - qq) - share : 0;
    }
    return std::max(0.0, pp / (g * (1 + g)) - pq / g + qq / (1 + g));
  };
}

PlainRow plain_bregman(Potential phi) {
  return [phi = std::move(phi)](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p,
                                std::span<double> of_q) {
    double sum = 0;
    for (size_t i = 0; i < log_p.size(); ++i) {
      const double p = std::exp(log_p[i]), q = std::exp(log_q[i]);
      double on_p = 0, on_q = 0;
      if (p != q) {
        sum += phi.value(p) - phi.value(q) - phi.derivative(q) * (p - q);
        on_p = p == 0 ? 0 : p * (phi.derivative(p) - phi.derivative(q));
        on_q = q == 0 ? 0 : -q * phi.second_derivative(q) * (p - q);
      }
      if (!of_p.empty()) of_p[i] = std::isfinite(on_p) ? on_p : 0;
      if (!of_q.empty()) of_q[i] = std::isfinite(on_q) ? on_q : 0;
    }
    return std::isnan(sum) ? sum : std::max(0.0, sum);
  };
}

PlainRow plain_itakura_saito() {
  return
      [](std::span<const double> log_p, std::span<const double> log_q, std::span<double> of_p, std::span<double> of_q) {
        double sum = 0;
        for (size_t i = 0; i < log_p.size(); ++i) {
          // In logarithms: neither law need be held by a float64.
          const bool neither = log_p[i] == -kInfinity && log_q[i] == -kInfinity;
          const double x = neither ? 0 : log_p[i] - log_q[i];
          sum += std::isinf(x) ? kInfinity : std::expm1(x) - x;
          const double slope = std::isinf(x) ? 0 : std::expm1(x);
          if (!of_p.empty()) of_p[i] = slope;
          if (!of_q.empty()) of_q[i] = -slope;
        }
        return std::isnan(sum) ? sum : std::max(0.0, sum);
      };
}

PlainRow plain_line(std::vector<double> positions) {
  std::vector<size_t> order(positions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return positions[i]; });
  return [positions = std::move(positions), order = std::move(order)](std::span<const double> log_p,
                                                                      std::span<const double> log_q,
                                                                      std::span<double> of_p, std::span<double> of_q) {
    const size_t size = log_p.size();
    if (!positions.empty() && positions.size() != size) {
      fail("wasserstein-1: {} positions for laws of {} outcomes", positions.size(), size);
    }
    const auto at = [&](size_t rank) { return positions.empty() ? rank : order[rank]; };
    const auto step = [&](size_t rank) {  // to the next position
      return positions.empty() ? 1.0 : positions[order[rank + 1]] - positions[order[rank]];
    };
    double above = 0, sum = 0;  // the difference of the distribution functions
    std::vector<double> slope(size, 0);
    for (size_t rank = 0; rank + 1 < size; ++rank) {
      above += std::exp(log_p[at(rank)]) - std::exp(log_q[at(rank)]);
      sum += std::abs(above) * step(rank);
      slope[rank] = (above > 0 ? 1.0 : above < 0 ? -1.0 : 0.0) * step(rank);
    }
    double from_here = 0;
    for (size_t rank = size; rank-- > 0;) {
      from_here += slope[rank];
      if (!of_p.empty()) of_p[at(rank)] = std::exp(log_p[at(rank)]) * from_here;
      if (!of_q.empty()) of_q[at(rank)] = -std::exp(log_q[at(rank)]) * from_here;
    }
    return sum;
  };
}

}  // namespace kullback::detail
