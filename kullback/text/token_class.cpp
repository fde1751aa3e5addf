#include "kullback/text/token_class.h"

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

bool continues_a_word(char32_t c) { return is_word(c) && !is_punctuation(c); }

/// The class of a token of these bytes, and in `before` whether the character that they end with could be continued as a word.
TokenClass class_of(const std::string& bytes, bool& before) {
  bool after = before;
  TokenClass found = TokenClass::whitespace;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    at += c.size;
    const bool space = c.valid && is_space(c.value), word = c.valid && continues_a_word(c.value);
    if (found == TokenClass::whitespace && !space) {
      if (!c.valid) {
        found = TokenClass::bytes;
      } else if (is_numeric(c.value)) {
        found = TokenClass::number;
      } else if (word) {
        found = after ? TokenClass::word_inside : TokenClass::word_start;
      } else {
        found = TokenClass::punctuation;
      }
    }
    after = word || !c.valid;  // a character in parts is most often a letter
  }
  before = after;
  return found;
}

}  // namespace

const std::vector<TokenClass>& token_classes() {
  using C = TokenClass;
  static const std::vector<C> all{C::word_start, C::word_inside, C::number, C::punctuation,
                                  C::whitespace, C::bytes,       C::special};
  return all;
}

std::string token_class_name(TokenClass token_class) {
  switch (token_class) {
    case TokenClass::word_start: return "word start";
    case TokenClass::word_inside: return "inside a word";
    case TokenClass::number: return "number";
    case TokenClass::punctuation: return "punctuation";
    case TokenClass::whitespace: return "white space";
    case TokenClass::bytes: return "part of a character";
    case TokenClass::special: return "special";
  }
  return "";
}

std::vector<TokenClass> classified(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<TokenClass> classes;
  bool inside = false;
  for (const int32_t id : ids) {
    if (tokenizer.is_special(id)) {
      classes.push_back(TokenClass::special);
      inside = false;
    } else {
      classes.push_back(class_of(tokenizer.token_bytes(id), inside));
    }
  }
  return classes;
}

}  // namespace kullback
