#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kullback/text/tokenizer.h"

namespace kullback {

/// What kind of text a token is, by the first character in it that is no space.
enum class TokenClass {
  word_start,   ///< a letter, and no letter, mark or digit stands right before it
  word_inside,  ///< a letter or mark that continues a word
  number,       ///< a digit or other numeric character
  punctuation,  ///< anything else that is visible: punctuation, symbols
  whitespace,   ///< nothing but white space
  bytes,        ///< a part of a character that several tokens make up
  special,      ///< one of the tokenizer's special tokens, such as the end of a turn
};
const std::vector<TokenClass>& token_classes();
/// "word start", "inside a word", ...
std::string token_class_name(TokenClass token_class);

/// The class of each token of a text. Context counts: what stands before a token says whether it starts a word.
std::vector<TokenClass> classified(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace kullback
