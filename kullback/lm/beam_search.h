#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace kullback {

/// Beam search as transformers runs it: the score of a finished sequence is its log-probability / length^length_penalty,
/// the end token counted.
struct BeamSearchOptions {
  int64_t num_beams = 1;        ///< K >= 1: sequences that are continued at each step
  int64_t max_new_tokens = 1;   ///< L >= 1: sequences end there
  double length_penalty = 1;    ///< a: above 0 favours longer sequences
  bool early_stopping = false;  ///< stop as soon as K sequences have ended
  int64_t num_return = 1;       ///< how many of the finished are returned; at most K
  int32_t end_token = -1;       ///< negative: none
  int64_t vocabulary = 0;       ///< of a model: real tokens, where its head has rows beyond them; 0: all are real
};

struct Beam {
  std::vector<int32_t> tokens;  ///< the end token included
  double logp = 0;
  double score = 0;  ///< logp / length^length_penalty
};

/// Log-probabilities of the next token after each of several sequences of new tokens, all of one length. [beams][V]
using NextLogps = std::function<std::vector<std::vector<double>>(const std::vector<std::vector<int32_t>>& sequences)>;

/// The finished sequences of the highest scores, best first; candidates of one step in the order of their
/// log-probability, then their beam, then their token. Throws an Error for an option that is out of range.
std::vector<Beam> beam_search(const NextLogps& next, const BeamSearchOptions& options);

}  // namespace kullback
