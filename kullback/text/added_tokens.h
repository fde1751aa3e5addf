#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/text/byte_trie.h"
#include "kullback/text/pattern.h"

namespace kullback {

/// A token that is found in a text as it stands, before anything splits the text.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< steers the model (begin, end, roles, …): left out of text shown to people
  bool single_word = false;  ///< only where no word character stands beside it
  bool lstrip = false;       ///< takes the white space on its left
  bool rstrip = false;       ///< takes the white space on its right
  bool normalized = false;   ///< looked for in the normalised text
};

/// Finds added tokens: the leftmost first, and of those that begin together the longest.
class AddedTokens {
 public:
  struct Match {
    std::int32_t id;
    ByteRange range;  ///< with the white space that it takes
  };

  AddedTokens() = default;
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  bool empty() const { return tokens_.empty(); }
  /// With `special` false, tokens marked so are not looked for.
  std::vector<Match> find(std::string_view text, bool special = true) const;

 private:
  /// The longest token that begins at `at`, or null.
  const AddedToken* longest(std::string_view text, std::size_t at, bool special) const;

  std::vector<AddedToken> tokens_;
  ByteTrie contents_;      // their places in tokens_
  bool begins_[256] = {};  // whether one begins with that byte
};

}  // namespace kullback
