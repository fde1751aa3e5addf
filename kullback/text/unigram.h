#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kullback/text/bpe.h"
#include "kullback/text/byte_trie.h"

namespace kullback {

/// A unigram language model over pieces (Kudo 2018, arXiv 1804.10959).
struct UnigramModel {
  std::vector<std::string> tokens;      ///< by id
  std::vector<double> scores;           ///< log-probabilities
  std::optional<std::int32_t> unknown;  ///< id of the piece for characters that no piece covers
  bool byte_fallback = false;  ///< such characters become tokens "<0x00>" to "<0xFF>" where all those are there
};

/// The most probable division of a word into pieces (Viterbi). Neighbouring unknown characters become one token.
class Unigram {
 public:
  /// Error if counts do not fit or `unknown` is not in the vocabulary. `name` stands in messages.
  Unigram(UnigramModel model, std::string_view name);

  const UnigramModel& model() const { return model_; }
  std::optional<std::int32_t> token_id(std::string_view token) const;
  /// Error if a character is unknown and the model has no token for it.
  void encode(std::string_view word, std::vector<TokenSpan>& out) const;

 private:
  void push_unknown(std::string_view word, std::size_t begin, std::size_t end, std::vector<TokenSpan>& out) const;

  UnigramModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_;
  ByteTrie pieces_;
  double unknown_score_ = 0;
};

/// WordPiece (Schuster and Nakajima 2012, as in BERT): the longest piece that fits, again and again.
struct WordPieceModel {
  std::vector<std::string> tokens;  ///< by id
  std::string unknown = "[UNK]";    ///< token of a word that cannot be put together
  std::string continuing_prefix = "##";
  std::size_t longest_word = 100;  ///< in code points; longer ones are unknown
};

class WordPiece {
 public:
  /// Error if `unknown` is not in the vocabulary.
  WordPiece(WordPieceModel model, std::string_view name);

  const WordPieceModel& model() const { return model_; }
  std::optional<std::int32_t> token_id(std::string_view token) const;
  void encode(std::string_view word, std::vector<TokenSpan>& out) const;

 private:
  WordPieceModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::int32_t unknown_ = 0;
};

}  // namespace kullback
