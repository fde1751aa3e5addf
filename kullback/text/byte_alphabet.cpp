#include "kullback/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

struct Alphabet {
  std::array<char32_t, 256> letters;
  std::array<int, 324> bytes;  // U+0000 to U+0143; -1: not a letter of the alphabet

  Alphabet() : letters(), bytes() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      letters[byte] = prints ? static_cast<char32_t>(byte) : next++;
      bytes[letters[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, alphabet().letters[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!point.valid || point.value >= alphabet().bytes.size() || alphabet().bytes[point.value] < 0)
      return std::nullopt;
    bytes += static_cast<char>(alphabet().bytes[point.value]);
    at += point.size;
  }
  return bytes;
}

}  // namespace kullback
