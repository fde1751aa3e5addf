#include "kullback/divergence/between_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kullback/base/error.h"
#include "kullback/divergence/definition.h"

namespace kullback {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Checks a probability vector and gives it a sum of exactly 1.
std::vector<double> checked(std::span<const double> p, const char* which) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!(p[i] >= 0) || std::isinf(p[i]))
      fail("{}: probability {} is {} and must be a number >= 0", which, i + 1, p[i]);
    sum += p[i];
  }
  if (!(std::abs(sum - 1) <= 1e-6)) fail("{}: the probabilities sum to {} and must sum to 1", which, sum);
  std::vector<double> scaled(p.begin(), p.end());
  for (double& x : scaled) x /= sum;
  return scaled;
}

void same_size(size_t p, size_t q) {
  if (p == 0 || q == 0) fail("a law of no outcomes has no divergence");
  if (p != q) fail("the first law has {} outcomes and the second {}", p, q);
}

/// Between two rows of logarithms whose normalisers are known.
double between_rows(const Divergence& d, std::span<const double> a, const detail::Normaliser& of_a,
                    std::span<const double> z, const detail::Normaliser& of_z) {
  const detail::Definition& definition = d.definition();
  if (const auto& term = definition.from_reference) {
    const detail::RowPair<double> rows{z.data(), a.data(), of_z, of_a};
    return detail::term_value(*term,
                              detail::term_kernels<double>().sums(*term, rows, 0, static_cast<int64_t>(a.size())));
  }
  std::vector<double> log_p(a.begin(), a.end()), log_q(z.begin(), z.end());
  for (double& x : log_p) x -= of_a.logsumexp();
  for (double& x : log_q) x -= of_z.logsumexp();
  return definition.plain(log_p, log_q, {}, {});
}

std::vector<double> logarithms(std::span<const double> p) {
  std::vector<double> out(p.size());
  std::ranges::transform(p, out.begin(), [](double x) { return std::log(x); });
  return out;
}

}  // namespace

double between_logits(const Divergence& divergence, std::span<const double> a, std::span<const double> z) {
  same_size(a.size(), z.size());
  std::vector<double> rows[2] = {{a.begin(), a.end()}, {z.begin(), z.end()}};
  detail::Normaliser normalisers[2];
  for (int side = 0; side < 2; ++side) {
    normalisers[side] = detail::law_kernels<double>()
                            .summarise(rows[side].data(), static_cast<int64_t>(a.size()), {}, false, nullptr)
                            .normaliser;
    if (std::isnan(normalisers[side].sum)) {
      fail("the {} row of logits holds NaN, +inf, or -inf alone", side == 0 ? "first" : "second");
    }
  }
  return between_rows(divergence, rows[0], normalisers[0], rows[1], normalisers[1]);
}

double between(const Divergence& divergence, std::span<const double> p, std::span<const double> q) {
  same_size(p.size(), q.size());
  const std::vector<double> log_p = logarithms(checked(p, "the first law")),
                            log_q = logarithms(checked(q, "the second law"));
  // The logarithms' normalisers are exactly 1.
  const auto zeros = [](std::span<const double> x) { return std::ranges::count(x, 0.0) > 0; };
  return between_rows(divergence, log_p, {0, 1, 0, zeros(p)}, log_q, {0, 1, 0, zeros(q)});
}

double between_counts(const Divergence& divergence, std::span<const double> counts_p, std::span<const double> counts_q,
                      double smoothing) {
  same_size(counts_p.size(), counts_q.size());
  if (!(smoothing >= 0) || std::isinf(smoothing)) fail("smoothing is {} and must be a number >= 0", smoothing);
  const auto frequencies = [&](std::span<const double> counts, const char* which) {
    std::vector<double> out(counts.begin(), counts.end());
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!(out[i] >= 0) || std::isinf(out[i]))
        fail("{}: count {} is {} and must be a number >= 0", which, i + 1, out[i]);
      out[i] += smoothing;
      sum += out[i];
    }
    if (sum == 0) fail("{} counts nothing", which);
    for (double& x : out) x /= sum;
    return out;
  };
  return between(divergence, frequencies(counts_p, "the first table"), frequencies(counts_q, "the second table"));
}

double transport_cost(std::span<const double> p, std::span<const double> q, std::span<const double> cost) {
  if (p.empty() || q.empty()) fail("a law of no outcomes has no divergence");
  if (cost.size() != p.size() * q.size()) {
    fail("the cost matrix has {} entries and must have {} x {}", cost.size(), p.size(), q.size());
  }
  for (const double c : cost) {
    if (!(c >= 0) || std::isinf(c)) fail("a cost is {} and must be a number >= 0", c);
  }
  std::vector<double> supply = checked(p, "the first law"), demand = checked(q, "the second law");
  const size_t n = supply.size(), m = demand.size();
  std::vector<double> flow(n * m, 0), row_potential(n, 0), column_potential(m, 0);
  double total = 0;

  // Each round sends mass along a shortest path of reduced costs from all rows with supply to a column with demand.
  while (true) {
    std::vector<double> row_distance(n, kInfinity), column_distance(m, kInfinity);
    std::vector<size_t> column_parent(m, n), row_parent(n, m);
    std::vector<bool> row_done(n, false), column_done(m, false);
    bool any = false;
    for (size_t i = 0; i < n; ++i) {
      if (supply[i] > 0) row_distance[i] = 0, any = true;
    }
    size_t target = m;
    while (any) {
      size_t row = n, column = m;
      double best = kInfinity;
      for (size_t i = 0; i < n; ++i) {
        if (!row_done[i] && row_distance[i] < best) best = row_distance[i], row = i;
      }
      for (size_t j = 0; j < m; ++j) {
        if (!column_done[j] && column_distance[j] < best) best = column_distance[j], column = j, row = n;
      }
      if (std::isinf(best)) break;
      if (column < m && row == n) {
        column_done[column] = true;
        if (demand[column] > 0) {
          target = column;
          break;
        }
        for (size_t i = 0; i < n; ++i) {
          if (row_done[i] || flow[i * m + column] <= 0) continue;
          const double back = std::max(0.0, row_potential[i] + column_potential[column] - cost[i * m + column]);
          if (best + back < row_distance[i]) row_distance[i] = best + back, row_parent[i] = column;
        }
      } else {
        row_done[row] = true;
        for (size_t j = 0; j < m; ++j) {
          const double along = std::max(0.0, cost[row * m + j] - row_potential[row] - column_potential[j]);
          if (!column_done[j] && best + along < column_distance[j])
            column_distance[j] = best + along, column_parent[j] = row;
        }
      }
    }
    if (target == m) break;
    const double reach = column_distance[target];
    for (size_t i = 0; i < n; ++i) row_potential[i] += reach - std::min(reach, row_distance[i]);
    for (size_t j = 0; j < m; ++j) column_potential[j] -= reach - std::min(reach, column_distance[j]);

    double mass = demand[target];
    for (size_t j = target;;) {
      const size_t i = column_parent[j];
      if (row_parent[i] == m) {
        mass = std::min(mass, supply[i]);
        break;
      }
      j = row_parent[i];
      mass = std::min(mass, flow[i * m + j]);
    }
    demand[target] -= mass;
    for (size_t j = target;;) {
      const size_t i = column_parent[j];
      flow[i * m + j] += mass;
      if (row_parent[i] == m) {
        supply[i] -= mass;
        break;
      }
      j = row_parent[i];
      flow[i * m + j] -= mass;
    }
  }
  for (size_t k = 0; k < flow.size(); ++k) total += flow[k] * cost[k];
  return total;
}

}  // namespace kullback
