#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kullback {

/// A token and the bytes of the word that it covers.
struct TokenSpan {
  std::int32_t id;
  std::uint32_t begin, end;
};

/// What byte-pair encoding is made of (Sennrich et al. 2016, arXiv 1508.07909; over bytes: Radford et al. 2019, GPT-2).
struct BpeModel {
  std::vector<std::string> tokens;                          ///< by id; an empty string is an id that no text gives
  std::vector<std::pair<std::string, std::string>> merges;  ///< first merged first
  bool byte_level = true;          ///< tokens are written in the byte alphabet, and symbols are bytes; else code points
  bool ignore_merges = false;      ///< a word that is a token as it stands is that token
  bool byte_fallback = false;      ///< an unknown character becomes tokens "<0x00>" to "<0xFF>"
  std::string unknown;             ///< token of an unknown symbol; empty: it vanishes
  bool fuse_unknown = false;       ///< neighbouring unknown symbols become one token
  std::string continuing_prefix;   ///< before every symbol but a word's first
  std::string end_of_word_suffix;  ///< after a word's last symbol
};

/// Splits words into tokens. Words seen before come from a bounded cache. May be used by several threads at once.
class Bpe {
 public:
  /// Error if a merge names a token that is not there, or `unknown` is none. `name` stands in messages.
  Bpe(BpeModel model, std::string_view name);
  ~Bpe();
  Bpe(Bpe&&) noexcept;

  const BpeModel& model() const { return model_; }
  std::optional<std::int32_t> token_id(std::string_view token) const;
  /// Appends the tokens of a word: raw bytes if byte_level, else characters.
  void encode(std::string_view word, std::vector<TokenSpan>& out) const;

 private:
  class MergeTable;
  class Cache;
  struct Symbol;

  void read_symbols(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge(std::vector<Symbol>& symbols) const;

  BpeModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_;  // of the token that is this one byte; -1: none
  std::int32_t unknown_ = -1;
  std::unique_ptr<MergeTable> merges_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace kullback
