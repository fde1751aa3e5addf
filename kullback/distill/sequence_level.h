#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kullback {

/// A finished or cut response with its log-probability.
struct Hypothesis {
  std::vector<int64_t> tokens;
  double logp = 0;
};

/// The log-probabilities [V] of the next token after a response's beginning.
using NextLogps = std::function<std::vector<double>(std::span<const int64_t> tokens)>;

/// Beam search without length penalty: every live beam is extended by every token, and the `beams` likeliest extensions are
/// kept (ties: the lexicographically smaller); those that end with `end` leave the beam. Stops when none lives or at
/// `max_length`; gives back at most `beams` hypotheses, ended and cut alike, the likeliest first.
std::vector<Hypothesis> beam_search(const NextLogps& next_logps, int64_t beams, int64_t max_length, int64_t end);

}  // namespace kullback
