#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/text/tokenizer.h"

namespace kullback {

/// For each of the teacher's tokens the student's pieces that spell it; empty: there is no mapping.
using TokenMap = std::vector<std::vector<int64_t>>;

/// Splits a WordPiece vocabulary's entries over another, longest piece first; "##" marks a piece that continues a word. What
/// cannot be split, and special tokens that the student lacks, become `unknown` whole.
TokenMap split_tokens(std::span<const std::string> teacher_vocabulary, std::span<const std::string> student_vocabulary,
                      std::span<const std::string> special, const std::string& unknown);
/// The same for byte-level tokenizers: the student's own encoding of each token's bytes. Special tokens map to the student's
/// special token of that text, or to nothing.
std::vector<int64_t> split_token(const Tokenizer& teacher, int32_t token, const Tokenizer& student);
TokenMap split_tokens(const Tokenizer& teacher, const Tokenizer& student);

/// Tokens that both vocabularies spell alike: {teacher id, student id}, by teacher id. Special tokens are compared by text.
std::vector<std::pair<int64_t, int64_t>> shared_tokens(std::span<const std::string> teacher_vocabulary,
                                                       std::span<const std::string> student_vocabulary);
std::vector<std::pair<int64_t, int64_t>> shared_tokens(const Tokenizer& teacher, const Tokenizer& student);

/// Which tokens of two tokenisations of one text are matched: from left to right each of the teacher's with the first equal one
/// of the student's after the last that was taken. As many are true on each side.
struct TokenMatch {
  std::vector<bool> teacher, student;
};
TokenMatch match_tokens(std::span<const std::string> teacher, std::span<const std::string> student);

/// Rows of two causal models whose prefixes are the same text: before the tokens numbered so, equally many bytes have been
/// said. Special tokens say none.
TokenMatch match_prefixes(const Tokenizer& teacher, std::span<const int64_t> teacher_ids, const Tokenizer& student,
                          std::span<const int64_t> student_ids);

/// What the student reads in the place of the teacher's tokens, and which of its places each of those became.
struct TokenGroups {
  std::vector<int64_t> student_ids;
  std::vector<std::vector<int64_t>> groups;  ///< [teacher tokens] places in student_ids
};
TokenGroups group_tokens(std::span<const int64_t> teacher_ids, const TokenMap& map);

/// Lists of different lengths as [n,longest], -1 beyond their ends.
at::Tensor padded_lists(const std::vector<std::vector<int64_t>>& lists);

/// The student's embedding rows [Vs,d]: each the mean of the teacher's [Vt,D] of all tokens whose split contains it, cut to the
/// first d columns; those that none contains stay as they are.
at::Tensor split_embedding(const TokenMap& map, const at::Tensor& teacher, const at::Tensor& student);

}  // namespace kullback
