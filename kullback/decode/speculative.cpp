#include "kullback/decode/speculative.h"

#include <algorithm>
#include <numeric>

#include "kullback/lm/sampling.h"

namespace kullback {

std::vector<double> residual_law(std::span<const double> target, std::span<const double> draft) {
  std::vector<double> law(target.size());
  double total = 0;
  for (size_t v = 0; v < law.size(); ++v) total += law[v] = std::max(target[v] - draft[v], 0.0);
  if (total == 0) return {target.begin(), target.end()};
  for (double& p : law) p /= total;
  return law;
}

double acceptance_rate(std::span<const double> target, std::span<const double> draft) {
  double sum = 0;
  for (size_t v = 0; v < target.size(); ++v) sum += std::min(target[v], draft[v]);
  return sum;
}

SpeculativeRound speculative_round(std::span<const int32_t> drafted, const std::vector<std::vector<double>>& draft,
                                   const std::vector<std::vector<double>>& target,
                                   std::span<const double> accept_uniforms, double final_uniform) {
  SpeculativeRound round;
  for (size_t i = 0; i < drafted.size(); ++i) round.acceptance.push_back(acceptance_rate(target[i], draft[i]));
  size_t i = 0;
  for (; i < drafted.size(); ++i) {
    const auto token = static_cast<size_t>(drafted[i]);
    if (!(accept_uniforms[i] * draft[i][token] < target[i][token])) break;  // never p / q: q may underflow
    round.tokens.push_back(drafted[i]);
  }
  round.accepted = static_cast<int64_t>(i);
  round.final_law = i == drafted.size() ? target[i] : residual_law(target[i], draft[i]);
  round.tokens.push_back(draw(round.final_law, final_uniform));
  return round;
}

std::vector<double> speculative_first_token_law(std::span<const double> target, std::span<const double> draft) {
  std::vector<double> law = residual_law(target, draft);
  const double refused = 1 - acceptance_rate(target, draft);
  for (size_t v = 0; v < law.size(); ++v) law[v] = std::min(target[v], draft[v]) + refused * law[v];
  return law;
}

double expected_round_length(const std::vector<std::vector<double>>& target,
                             const std::vector<std::vector<double>>& draft, size_t start, int64_t gamma) {
  std::vector<double> reached(target.size());  // P(all drafts so far accepted, the last of them is v)
  reached[start] = 1;
  double length = 1;
  for (int64_t i = 0; i < gamma; ++i) {
    std::vector<double> next(reached.size());
    for (size_t from = 0; from < reached.size(); ++from) {
      for (size_t to = 0; to < next.size(); ++to)
        next[to] += reached[from] * std::min(target[from][to], draft[from][to]);
    }
    reached = next;
    length += std::accumulate(reached.begin(), reached.end(), 0.0);
  }
  return length;
}

}  // namespace kullback
