#include "kullback/lm/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kullback/base/error.h"

namespace kullback {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A token that is still in the race, with its logit at the chosen temperature.
struct Candidate {
  int32_t id;
  double logit;
};

std::vector<Candidate> candidates(std::span<const float> logits, double temperature) {
  std::vector<Candidate> live;
  live.reserve(logits.size());
  for (size_t v = 0; v < logits.size(); ++v) {
    if (std::isnan(logits[v]) || logits[v] == infinity) fail("the model's logit of token {} is {}", v, logits[v]);
    if (logits[v] > -infinity) live.push_back({static_cast<int32_t>(v), static_cast<double>(logits[v]) / temperature});
  }
  if (live.empty()) fail("the model gives no token a probability above zero");
  return live;
}

void keep_top_k(std::vector<Candidate>& live, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(live.size())) return;
  std::vector<double> logits(live.size());
  std::transform(live.begin(), live.end(), logits.begin(), [](const Candidate& c) { return c.logit; });
  std::nth_element(logits.begin(), logits.begin() + (k - 1), logits.end(), std::greater<>());
  const double least = logits[static_cast<size_t>(k - 1)];
  std::erase_if(live, [least](const Candidate& c) { return c.logit < least; });
}

double largest_logit(const std::vector<Candidate>& live) {
  return std::max_element(live.begin(), live.end(),
                          [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; })
      ->logit;
}

void keep_top_p(std::vector<Candidate>& live, double p) {
  if (p >= 1) return;
  std::sort(live.begin(), live.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  const double largest = live.front().logit;
  double total = 0;
  for (const Candidate& candidate : live) total += std::exp(candidate.logit - largest);
  double before = 0;
  size_t kept = 0;
  while (kept < live.size() && (kept == 0 || before < p * total)) before += std::exp(live[kept++].logit - largest);
  live.resize(kept);
  std::sort(live.begin(), live.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void keep_min_p(std::vector<Candidate>& live, double m) {
  if (m <= 0) return;
  const double least = largest_logit(live) + std::log(m);
  std::erase_if(live, [least](const Candidate& c) { return c.logit < least; });
}

NextTokenLaw arg_max(std::span<const float> logits) {
  const std::vector<Candidate> live = candidates(logits, 1);
  const auto best = std::max_element(live.begin(), live.end(),
                                     [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  return {{best->id}, {1.0}};
}

}  // namespace

void validate(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    fail("temperature is {}, which must be at least 0", sampling.temperature);
  if (sampling.top_k < 0) fail("top-k is {}, which must be at least 0 (0: off)", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    fail("top-p is {}, which must be above 0 and at most 1 (1: off)", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    fail("min-p is {}, which must be from 0 to 1 (0: off)", sampling.min_p);
}

NextTokenLaw next_token_law(std::span<const float> logits, const Sampling& sampling) {
  if (sampling.temperature == 0) return arg_max(logits);
  std::vector<Candidate> live = candidates(logits, sampling.temperature);
  keep_top_k(live, sampling.top_k);
  keep_top_p(live, sampling.top_p);
  keep_min_p(live, sampling.min_p);
  const double largest = largest_logit(live);
  NextTokenLaw law;
  for (const Candidate& candidate : live) {
    law.ids.push_back(candidate.id);
    law.probabilities.push_back(std::exp(candidate.logit - largest));
  }
  const double total = std::accumulate(law.probabilities.begin(), law.probabilities.end(), 0.0);
  for (double& probability : law.probabilities) probability /= total;
  return law;
}

int32_t draw(const NextTokenLaw& law, double uniform) {
  double cumulative = 0;
  int32_t last = law.ids.front();
  for (size_t i = 0; i < law.ids.size(); ++i) {
    if (law.probabilities[i] == 0) continue;  // underflowed: it cannot be drawn
    cumulative += law.probabilities[i];
    last = law.ids[i];
    if (cumulative > uniform) break;
  }
  return last;
}

}  // namespace kullback
