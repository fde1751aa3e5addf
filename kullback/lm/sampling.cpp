#include "kullback/lm/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kullback/base/error.h"

namespace kullback {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double largest_logit(std::span<const double> row) {
  bool any = false;
  double largest = -infinity;
  for (size_t v = 0; v < row.size(); ++v) {
    if (std::isnan(row[v]) || row[v] == infinity) fail("the model's logit of token {} is {}", v, row[v]);
    any = any || row[v] > -infinity;
    largest = std::max(largest, row[v]);
  }
  if (!any) fail("the model gives no token a probability above zero");
  return largest;
}

std::vector<size_t> live_ids(std::span<const double> row) {
  std::vector<size_t> ids;
  for (size_t v = 0; v < row.size(); ++v) {
    if (row[v] > -infinity) ids.push_back(v);
  }
  return ids;
}

// The k-th largest logit, k from 1; -infinity when fewer are alive.
double kth_largest(std::span<const double> row, int64_t k) {
  std::vector<double> logits;
  for (const double logit : row) {
    if (logit > -infinity) logits.push_back(logit);
  }
  if (k > static_cast<int64_t>(logits.size())) return -infinity;
  std::nth_element(logits.begin(), logits.begin() + (k - 1), logits.end(), std::greater<>());
  return logits[static_cast<size_t>(k - 1)];
}

void remove_below(LogitRow row, double least) {
  for (double& logit : row) {
    if (logit < least) logit = -infinity;
  }
}

// Removes logits below a bound, but none of the `min_keep` likeliest.
void remove_below(LogitRow row, double least, int64_t min_keep) {
  remove_below(row, std::min(least, kth_largest(row, min_keep)));
}

double entropy(std::span<const double> logps) {
  double sum = 0;
  for (const double logp : logps) {
    if (logp > -infinity) sum -= std::exp(logp) * logp;
  }
  return sum;
}

std::vector<size_t> likeliest_first(std::span<const double> row) {
  std::vector<size_t> order = live_ids(row);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  return order;
}

void keep_only(LogitRow row, std::span<const size_t> order, size_t count) {
  for (size_t i = count; i < order.size(); ++i) row[order[i]] = -infinity;
}

bool penalises(const Sampling& sampling) {
  return sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 || sampling.presence_penalty != 0;
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
  if (!(sampling.typical > 0 && sampling.typical <= 1))
    fail("typical is {}, which must be above 0 and at most 1 (1: off)", sampling.typical);
  if (!(sampling.epsilon >= 0 && sampling.epsilon < 1))
    fail("epsilon is {}, which must be at least 0 and below 1 (0: off)", sampling.epsilon);
  if (!(sampling.eta >= 0 && sampling.eta < 1))
    fail("eta is {}, which must be at least 0 and below 1 (0: off)", sampling.eta);
  if (sampling.min_keep < 1) fail("min-keep is {}, which must be at least 1", sampling.min_keep);
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty))
    fail("repetition-penalty is {}, which must be above 0 (1: off)", sampling.repetition_penalty);
  if (!std::isfinite(sampling.frequency_penalty) || !std::isfinite(sampling.presence_penalty))
    fail("frequency-penalty and presence-penalty must be finite");
}

void penalise(LogitRow row, std::span<const int32_t> history, const Sampling& sampling) {
  if (!penalises(sampling)) return;
  std::map<int32_t, double> counts;
  for (const int32_t id : history) {
    if (id >= 0 && static_cast<size_t>(id) < row.size()) ++counts[id];
  }
  for (const auto& [id, count] : counts) {
    double& logit = row[static_cast<size_t>(id)];
    if (logit == -infinity) continue;
    logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    logit -= sampling.frequency_penalty * count + sampling.presence_penalty;
  }
}

void scale_by_temperature(LogitRow row, double temperature) {
  if (temperature == 1) return;
  if (temperature > 0) {
    for (double& logit : row) logit /= temperature;
    return;
  }
  const auto best = static_cast<size_t>(arg_max(row));
  std::fill(row.begin(), row.end(), -infinity);
  row[best] = 0;
}

void keep_top_k(LogitRow row, int64_t k, Sampling::Ties ties) {
  if (k <= 0) return;
  if (ties == Sampling::Ties::lowest_id) {
    keep_only(row, likeliest_first(row), static_cast<size_t>(k));
  } else {
    remove_below(row, kth_largest(row, k));
  }
}

void keep_top_p(LogitRow row, double p, int64_t min_keep) {
  if (p >= 1) return;
  const std::vector<size_t> order = likeliest_first(row);
  const double largest = largest_logit(row);
  double total = 0, before = 0;
  for (const size_t id : order) total += std::exp(row[id] - largest);
  size_t kept = 0;
  while (kept < order.size() && (kept < static_cast<size_t>(min_keep) || before < p * total))
    before += std::exp(row[order[kept++]] - largest);
  keep_only(row, order, kept);
}

void keep_min_p(LogitRow row, double m, int64_t min_keep) {
  if (m > 0) remove_below(row, largest_logit(row) + std::log(m), min_keep);
}

void keep_typical(LogitRow row, double mass, int64_t min_keep) {
  if (mass >= 1) return;
  const std::vector<double> logps = log_softmax(row);
  const double expected = entropy(logps);
  const auto deviation = [&](size_t id) { return std::fabs(-logps[id] - expected); };
  std::vector<size_t> order = live_ids(row);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return deviation(a) != deviation(b) ? deviation(a) < deviation(b) : a < b; });
  size_t last = 0;
  double sum = 0;
  for (const size_t id : order) last += (sum += std::exp(logps[id])) < mass;
  last = std::min(std::max(last, static_cast<size_t>(min_keep - 1)), order.size() - 1);
  const double largest = deviation(order[last]);
  for (const size_t id : order) {
    if (deviation(id) > largest) row[id] = -infinity;
  }
}

void keep_epsilon(LogitRow row, double epsilon, int64_t min_keep) {
  if (epsilon <= 0) return;
  const std::vector<double> probabilities = softmax(row);
  const double least = kth_largest(row, min_keep);
  for (size_t v = 0; v < row.size(); ++v) {
    if (probabilities[v] < epsilon && row[v] < least) row[v] = -infinity;
  }
}

void keep_eta(LogitRow row, double epsilon, int64_t min_keep) {
  if (epsilon <= 0) return;
  keep_epsilon(row, std::min(epsilon, std::sqrt(epsilon) * std::exp(-entropy(log_softmax(row)))), min_keep);
}

void filter(LogitRow row, std::span<const int32_t> history, const Sampling& sampling) {
  penalise(row, history, sampling);
  scale_by_temperature(row, sampling.temperature);
  keep_top_k(row, sampling.top_k, sampling.ties);
  keep_top_p(row, sampling.top_p, sampling.min_keep);
  keep_min_p(row, sampling.min_p, sampling.min_keep);
  keep_typical(row, sampling.typical, sampling.min_keep);
  keep_epsilon(row, sampling.epsilon, sampling.min_keep);
  keep_eta(row, sampling.eta, sampling.min_keep);
}

std::vector<double> log_softmax(std::span<const double> row) {
  const double largest = largest_logit(row);
  double total = 0;
  for (const double logit : row) total += std::exp(logit - largest);
  const double normaliser = std::log(total);
  std::vector<double> logps(row.size());
  for (size_t v = 0; v < row.size(); ++v) logps[v] = (row[v] - largest) - normaliser;
  return logps;
}

std::vector<double> softmax(std::span<const double> row) {
  std::vector<double> probabilities = log_softmax(row);
  for (double& p : probabilities) p = std::exp(p);
  return probabilities;
}

int32_t arg_max(std::span<const double> row) {
  largest_logit(row);  // says what is wrong with a row that has none
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

int32_t draw(std::span<const double> probabilities, double uniform) {
  double cumulative = 0;
  size_t last = 0;
  for (size_t v = 0; v < probabilities.size(); ++v) {
    if (probabilities[v] == 0) continue;  // underflowed: it cannot be drawn
    cumulative += probabilities[v];
    last = v;
    if (cumulative > uniform) break;
  }
  return static_cast<int32_t>(last);
}

int32_t gumbel_draw(std::span<const double> row, std::span<const double> uniforms) {
  std::vector<double> noisy = log_softmax(row);
  for (size_t v = 0; v < noisy.size(); ++v) noisy[v] -= std::log(-std::log(uniforms[v]));
  return static_cast<int32_t>(std::max_element(noisy.begin(), noisy.end()) - noisy.begin());
}

NextTokenLaw next_token_law(std::span<const float> logits, const Sampling& sampling, std::span<const int32_t> history) {
  std::vector<double> row(logits.begin(), logits.end());
  largest_logit(row);               // says what is wrong with a row that has none
  if (sampling.temperature == 0) {  // no filter removes the last token
    penalise(row, history, sampling);
    return {{arg_max(row)}, {1.0}};
  }
  filter(row, history, sampling);
  const double largest = largest_logit(row);
  double total = 0;
  NextTokenLaw law;
  law.ids.reserve(row.size());
  law.probabilities.reserve(row.size());
  for (size_t v = 0; v < row.size(); ++v) {
    if (row[v] == -infinity) continue;
    law.ids.push_back(static_cast<int32_t>(v));
    law.probabilities.push_back(std::exp(row[v] - largest));
    total += law.probabilities.back();
  }
  for (double& probability : law.probabilities) probability /= total;
  return law;
}

size_t draw_place(const NextTokenLaw& law, double uniform) {
  return static_cast<size_t>(draw(std::span<const double>(law.probabilities), uniform));
}

int32_t draw(const NextTokenLaw& law, double uniform) { return law.ids[draw_place(law, uniform)]; }

}  // namespace kullback
