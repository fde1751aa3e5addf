#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kullback {

/// One code point as it stands in a text, or one byte that is no part of well-formed UTF-8.
struct CodePoint {
  char32_t value;    ///< of an invalid byte: the byte itself
  std::size_t size;  ///< in bytes, 1 to 4; 0 at the end of the text
  bool valid;
};

/// The code point that begins at byte `at`. Surrogates, overlong forms and values above U+10FFFF are invalid.
CodePoint code_point_at(std::string_view text, std::size_t at);

void append_utf8(std::string& text, char32_t value);

/// Length of the well-formed UTF-8 that the text begins with.
std::size_t valid_prefix(std::string_view text);

/// The text with each maximal invalid part (Unicode 15, section 3.9, "U+FFFD substitution of maximal subparts") replaced by
/// U+FFFD.
std::string with_replacements(std::string_view text);

/// Unicode general category L*, N*, P*; White_Space.
bool is_letter(char32_t c);
bool is_numeric(char32_t c);
bool is_punctuation(char32_t c);
bool is_space(char32_t c);
/// What a regular expression's `\w` takes: letters, marks, numbers, connecting punctuation, joiners.
bool is_word(char32_t c);

}  // namespace kullback
