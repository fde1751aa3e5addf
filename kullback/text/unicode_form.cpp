// Unicode normalisation forms that keep track of where each character came from, which utf8proc's own do not.
#include "kullback/text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

using Character = TracedText::Changed;

int combining_class(char32_t c) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

/// The one character that two in a row make, if they do.
std::optional<char32_t> composed(char32_t first, char32_t second) {
  std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const auto length =
      utf8proc_normalize_utf32(pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (length != 1) return std::nullopt;
  return static_cast<char32_t>(pair[0]);
}

void decompose(char32_t c, bool compatibility, std::vector<Character>& out) {
  std::array<utf8proc_int32_t, 32> parts{};
  int last_class = 0;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatibility ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                             static_cast<utf8proc_ssize_t>(parts.size()), options, &last_class);
  if (count < 1 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    out.push_back({c, 0});
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.push_back({static_cast<char32_t>(parts[static_cast<std::size_t>(i)]), i == 0 ? 0 : 1});
  }
}

/// Marks between two starters go by their combining class, those of one class as they stood.
void reorder(std::vector<Character>& characters) {
  for (auto begin = characters.begin(); begin != characters.end();) {
    if (combining_class(begin->value) == 0) {
      ++begin;
      continue;
    }
    auto end = std::find_if(begin, characters.end(), [](const Character& c) { return combining_class(c.value) == 0; });
    std::stable_sort(begin, end, [](const Character& a, const Character& b) {
      return combining_class(a.value) < combining_class(b.value);
    });
    begin = end;
  }
}

std::vector<Character> compose(const std::vector<Character>& characters) {
  std::vector<Character> out;
  std::optional<std::size_t> starter;
  int last_class = 0;  // of the last character left standing after the starter
  for (const Character& c : characters) {
    const int own_class = combining_class(c.value);
    const bool next_to_starter = starter && *starter + 1 == out.size();
    const bool blocked = !next_to_starter && last_class >= own_class;
    if (starter && !blocked) {
      if (const auto one = composed(out[*starter].value, c.value)) {
        out[*starter].value = *one;
        out[*starter].change += c.change - 1;
        continue;
      }
    }
    if (own_class == 0) starter = out.size();
    last_class = own_class;
    out.push_back(c);
  }
  return out;
}

}  // namespace

TracedText in_unicode_form(const UnicodeForm& form, const TracedText& text) {
  const std::string& bytes = text.text();
  if (std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return text;
  TracedText out = text.rewritten();
  std::vector<Character> characters;
  for (const Piece& piece : Section(text, false).pieces) {
    if (!piece.valid) {
      out.append_same(text, piece.range);
      continue;
    }
    characters.clear();
    for (std::size_t at = piece.range.begin; at < piece.range.end;) {
      const CodePoint point = code_point_at(bytes, at);
      decompose(point.value, form.compatibility, characters);
      at += point.size;
    }
    reorder(characters);
    out.append(form.compose ? compose(characters) : characters, text, piece.range);
  }
  return out.text() == bytes ? text : out;
}

}  // namespace kullback
