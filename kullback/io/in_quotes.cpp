#include "kullback/io/in_quotes.h"

#include <fmt/format.h>

namespace kullback {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 80;
  std::string text = "'";
  for (const char c : name.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + (name.size() > longest ? "…'" : "'");
}

}  // namespace kullback
