#include "kullback/decode/best_of_n.h"

#include <cmath>

#include "kullback/base/error.h"

namespace kullback {

size_t best_of(std::span<const double> rewards) {
  if (rewards.empty()) fail("best of n: there is no response");
  size_t best = 0;
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (std::isnan(rewards[i])) fail("best of n: the reward of response {} is NaN", i);
    if (rewards[i] > rewards[best]) best = i;
  }
  return best;
}

BestOfNLaw best_of_n_law(std::span<const double> probabilities, std::span<const double> rewards, int64_t n) {
  if (n < 1) fail("n is {}, which must be at least 1", n);
  if (probabilities.size() != rewards.size())
    fail("best of n: {} probabilities and {} rewards", probabilities.size(), rewards.size());
  BestOfNLaw result;
  const auto count = static_cast<double>(n);
  for (size_t y = 0; y < rewards.size(); ++y) {
    double below = 0, equal = 0;
    for (size_t other = 0; other < rewards.size(); ++other) {
      if (rewards[other] < rewards[y]) below += probabilities[other];
      if (rewards[other] == rewards[y]) equal += probabilities[other];
    }
    const double wins = std::pow(below + equal, count) - std::pow(below, count);
    result.law.push_back(equal > 0 ? probabilities[y] / equal * wins : 0);
    if (result.law.back() > 0) result.kl += result.law.back() * std::log(result.law.back() / probabilities[y]);
    result.expected_reward += result.law.back() * rewards[y];
  }
  result.kl_bound = std::log(count) - (count - 1) / count;
  return result;
}

}  // namespace kullback
