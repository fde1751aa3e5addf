#include "kullback/report/escape.h"

#include <algorithm>

#include <utf8proc.h>

namespace kullback {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

struct Character {
  std::int32_t code = -1;  ///< -1: not valid UTF-8
  std::size_t size = 1;    ///< bytes; 1 where not valid
};

Character next_character(std::string_view text) {
  utf8proc_int32_t code = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &code);
  if (size <= 0) return {};
  return {code, static_cast<std::size_t>(size)};
}

// XML 1.0 allows no control characters but tab and line breaks, and neither U+FFFE nor U+FFFF.
bool is_forbidden(std::int32_t code) {
  return code < 0 || (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0) ||
         (code & 0xFFFE) == 0xFFFE;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string clean_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Character character = next_character(text);
    if (text.substr(0, 2) == "\r\n") {
      // the newline follows by itself
    } else if (is_forbidden(character.code)) {
      clean += replacement;
    } else {
      clean += text.substr(0, character.size);
    }
    text.remove_prefix(character.size);
  }
  return clean;
}

std::string escape_html(std::string_view text) {
  const std::string clean = clean_utf8(text);
  std::string escaped;
  escaped.reserve(clean.size() + clean.size() / 8);
  for (const char c : clean) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string json_for_script(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  // Only inside strings can these occur, where \u003c means the same.
  replace_all(text, "<", "\\u003c");
  replace_all(text, ">", "\\u003e");
  replace_all(text, "&", "\\u0026");
  replace_all(text, "\x7f", "\\u007f");  // the one control character that JSON does not escape by itself
  return text;
}

std::string escape_markdown(std::string_view text) {
  std::string escaped;
  for (const char c : clean_utf8(text)) {
    if (c == '\n' || c == '\t') {
      escaped += ' ';
    } else {
      if (std::string_view("\\|`*_<>[]").find(c) != std::string_view::npos) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string escape_csv(std::string_view text) {
  const bool outer_blank = !text.empty() && (text.front() == ' ' || text.back() == ' ');
  if (!outer_blank && text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const Character character = next_character(text);
    width += character.code < 0 ? 1 : static_cast<std::size_t>(std::max(0, utf8proc_charwidth(character.code)));
    text.remove_prefix(character.size);
  }
  return width;
}

std::string clip_to_width(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::size_t used = 0, bytes = 0;
  while (bytes < text.size()) {
    const Character character = next_character(text.substr(bytes));
    const std::size_t columns = display_width(text.substr(bytes, character.size));
    if (used + columns > width - 1) break;  // one column is kept for the ellipsis
    used += columns;
    bytes += character.size;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string_view clip_to_bytes(std::string_view text, std::size_t bytes, bool* cut) {
  if (cut != nullptr) *cut = text.size() > bytes;
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace kullback
