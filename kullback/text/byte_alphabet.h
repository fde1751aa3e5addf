#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kullback {

/// GPT-2's alphabet of 256 printable characters, one a byte: a byte that prints in Latin-1 stands for itself, the other 68
/// follow as U+0100, U+0101, … (so a space is Ġ). Vocabularies of byte-level BPE are written in it.
std::string to_byte_alphabet(std::string_view bytes);

/// The bytes that the text stands for, or nothing if a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace kullback
