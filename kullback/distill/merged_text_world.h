#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Texts of a source of characters a, b, c, … each drawn after the one before, and the tokens that merges of two make of them:
/// where claims about models of different tokenizers are shown.
struct MergedTextWorld {
  int64_t characters = 8;
  at::Tensor source;  ///< [A+1,A] log-probabilities of a character after each, the last row at the start
};
MergedTextWorld merged_text_world(uint64_t seed);

std::vector<std::string> draw_texts(const MergedTextWorld& world, int64_t texts, int64_t length, uint64_t seed);

/// The characters, and the pairs that are most frequent in these texts.
std::vector<std::string> merged_vocabulary(const MergedTextWorld& world, const std::vector<std::string>& texts,
                                           int64_t merges);

/// Longest token first, from left to right.
std::vector<int64_t> merged_tokens(const std::vector<std::string>& vocabulary, const std::string& text);

/// Tokens of texts as rows of a first-order model: labels [B,T], the table's row that predicts each (V at the start), mask.
struct TokenBatch {
  at::Tensor labels, previous, mask;
  std::vector<std::vector<int64_t>> tokens;
  double characters = 0;
};
TokenBatch token_batch(const std::vector<std::string>& vocabulary, const std::vector<std::string>& texts);

/// Mean cross-entropy a character of a first-order model's table of logits [V+1,V], nats.
double nats_a_character(const at::Tensor& table, const TokenBatch& batch);

}  // namespace kullback
