#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kullback {

/// Best of n: of n independent responses, the one of the largest reward.

/// Its place, the first among equals. Throws an Error for a NaN or when there is none.
size_t best_of(std::span<const double> rewards);

/// The exact law of the winner, and how far it is from the model's.
struct BestOfNLaw {
  std::vector<double> law;  ///< pi(y) / pi(r = r(y)) (F(r)^n - F(r-)^n)
  double kl = 0;            ///< KL(best of n || pi), nats
  double kl_bound = 0;      ///< log n - (n - 1) / n >= kl, equal only without ties and atoms
  double expected_reward = 0;
};
BestOfNLaw best_of_n_law(std::span<const double> probabilities, std::span<const double> rewards, int64_t n);

}  // namespace kullback
