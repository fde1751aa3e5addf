#include "kullback/align/transport.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {

using at::Tensor;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nothing = 1e-15;  // mass below this is rounding

/// Shortest paths, in costs less potentials, from tokens that still have mass to all others. Places 0..V-1 give, V..2V-1 take.
struct Paths {
  std::vector<double> distance;
  std::vector<size_t> before;
  size_t end = 0;  // the nearest place that still wants mass; 2V if there is none
};

class Network {
 public:
  Network(const Tensor& p, const Tensor& q, const Tensor& cost)
      : size_(static_cast<size_t>(p.size(0))),
        cost_(cost.to(at::kDouble).contiguous()),
        flow_(size_ * size_),
        give_(values(p)),
        want_(values(q)),
        potential_(2 * size_) {}

  Transport solve() {
    while (std::any_of(give_.begin(), give_.end(), [](double mass) { return mass > nothing; })) {
      const Paths paths = shortest_paths();
      if (paths.end == 2 * size_) break;  // what is left is rounding
      const double reach = paths.distance[paths.end];
      for (size_t i = 0; i < 2 * size_; ++i) {
        const double nearer = std::max(0.0, reach - paths.distance[i]);
        potential_[i] += i < size_ ? nearer : -nearer;
      }
      send(paths);
    }
    Transport result{.cost = 0, .potential = at::empty({static_cast<int64_t>(size_)}, at::kDouble)};
    for (size_t i = 0; i < size_; ++i) result.potential.mutable_data_ptr<double>()[i] = potential_[i];
    for (size_t i = 0; i < flow_.size(); ++i) result.cost += flow_[i] * cost_.const_data_ptr<double>()[i];
    return result;
  }

 private:
  static std::vector<double> values(const Tensor& law) {
    const Tensor t = law.to(at::kDouble).contiguous();
    return {t.const_data_ptr<double>(), t.const_data_ptr<double>() + t.numel()};
  }
  /// Cost of going from a place to the other side, never negative; infinite where there is no way back.
  double length(size_t from, size_t to) const {
    const bool forward = from < size_;
    const size_t i = forward ? from : to, j = (forward ? to : from) - size_;
    if (!forward && flow_[i * size_ + j] <= 0) return infinity;
    const double reduced = cost_.const_data_ptr<double>()[i * size_ + j] - potential_[i] - potential_[size_ + j];
    return forward ? std::max(0.0, reduced) : 0;
  }
  Paths shortest_paths() const {
    Paths paths{.distance = std::vector<double>(2 * size_, infinity), .before = std::vector<size_t>(2 * size_)};
    std::vector<bool> done(2 * size_);
    for (size_t i = 0; i < size_; ++i) {
      if (give_[i] > nothing) paths.distance[i] = 0, paths.before[i] = i;
    }
    while (true) {
      size_t at = 2 * size_;
      for (size_t i = 0; i < 2 * size_; ++i) {
        if (!done[i] && (at == 2 * size_ || paths.distance[i] < paths.distance[at])) at = i;
      }
      if (at == 2 * size_ || paths.distance[at] == infinity) {
        paths.end = 2 * size_;
        return paths;
      }
      paths.end = at;
      if (at >= size_ && want_[at - size_] > nothing) return paths;
      done[at] = true;
      for (size_t i = 0; i < size_; ++i) {
        const size_t to = at < size_ ? size_ + i : i;
        const double through = paths.distance[at] + length(at, to);
        if (through < paths.distance[to]) paths.distance[to] = through, paths.before[to] = at;
      }
    }
  }
  void send(const Paths& paths) {
    double mass = want_[paths.end - size_];
    size_t at = paths.end;
    for (; paths.before[at] != at; at = paths.before[at]) {
      const size_t from = paths.before[at];
      if (from >= size_) mass = std::min(mass, flow_[at * size_ + from - size_]);
    }
    mass = std::min(mass, give_[at]);
    give_[at] -= mass, want_[paths.end - size_] -= mass;
    for (at = paths.end; paths.before[at] != at; at = paths.before[at]) {
      const size_t from = paths.before[at];
      if (from < size_) {
        flow_[from * size_ + at - size_] += mass;
      } else {
        flow_[at * size_ + from - size_] -= mass;
      }
    }
  }

  size_t size_;
  Tensor cost_;
  std::vector<double> flow_, give_, want_, potential_;
};

}  // namespace

Transport transport(const Tensor& p, const Tensor& q, const Tensor& cost) {
  const int64_t size = p.size(0);
  if (q.size(0) != size || cost.dim() != 2 || cost.size(0) != size || cost.size(1) != size)
    fail("transport between laws of {} and {} outcomes needs a square matrix of costs", size, q.size(0));
  return Network(p, q, cost).solve();
}

Tensor transport_cost(const Tensor& p, const Tensor& q, const Tensor& cost) {
  std::vector<Tensor> costs;
  for (int64_t i = 0; i < p.size(0); ++i) {
    const Transport t = transport(p[i].detach(), q[i].detach(), cost);
    // Value of the solver, gradient of the dual.
    costs.push_back(t.cost + (t.potential.to(p.scalar_type()) * (p[i] - p[i].detach())).sum());
  }
  return at::stack(costs);
}

}  // namespace kullback
