#pragma once

#include <cstdint>
#include <vector>

#include "kullback/lm/transformer.h"

namespace kullback {

/// What a model says about every position of one sequence of n tokens. Natural logarithms.
struct SequenceScores {
  std::vector<double> logps;      ///< [n-1]: logps[i] is the log-probability of token i+1
  std::vector<double> entropy;    ///< [n]
  std::vector<double> logsumexp;  ///< [n]
  int64_t top_k = 0;
  std::vector<int32_t> top_ids;   ///< [n, top_k], the likeliest first
  std::vector<double> top_logps;  ///< [n, top_k]
};

/// Scores sequences in one ragged batch through the streaming head. Takes no gradients.
std::vector<SequenceScores> score(const Transformer& model, const std::vector<std::vector<int32_t>>& sequences,
                                  int64_t top_k = 0, AdapterUse use = AdapterUse::on);

/// The token that follows each position of the batch, -100 at the last of each sequence. [N] int64
at::Tensor next_tokens(const Ragged& batch);

}  // namespace kullback
