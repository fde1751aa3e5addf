#include "kullback/report/shaded.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kullback/report/escape.h"

namespace kullback {
namespace {

constexpr std::array<int, 6> grounds{0, 224, 217, 210, 203, 196};  // of the 256 colours: none, then pale to full red

size_t level_of(double value, double full) {
  if (!(full > 0) || !(value > 0)) return 0;
  const double share = std::min(value / full, 1.0);
  return std::min(grounds.size() - 1, static_cast<size_t>(share * static_cast<double>(grounds.size())));
}

}  // namespace

std::string shaded_terminal(const ShadedText& text, const TerminalStyle& style) {
  double full = text.full;
  for (const ShadedText::Piece& piece : text.pieces) full = text.full > 0 ? full : std::max(full, piece.value);
  std::string out = fmt::format("{} ({} up to {})\n", text.title, text.value_name, number_text(full, significant(2)));
  for (const ShadedText::Piece& piece : text.pieces) {
    const size_t level = level_of(piece.value, full);
    const std::string shown = clean_utf8(piece.text);
    if (style.colours && level > 0) {
      out += fmt::format("\x1b[38;5;16;48;5;{}m{}\x1b[0m", grounds[level], shown);
    } else {
      out += !style.colours && 2 * level >= grounds.size() ? "[" + shown + "]" : shown;
    }
  }
  return out + "\n";
}

}  // namespace kullback
