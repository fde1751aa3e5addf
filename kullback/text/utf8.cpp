#include "kullback/text/utf8.h"

#include <utf8proc.h>

namespace kullback {
namespace {

bool is_continuation(std::string_view text, std::size_t at, unsigned least = 0x80, unsigned most = 0xbf) {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte >= least && byte <= most;
}

struct Lead {
  std::size_t size;      // 0: no lead byte
  unsigned least, most;  // range of the second byte (Unicode, table 3-7)
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

/// Bytes from `at` that are a code point or the beginning of one.
std::size_t well_formed_bytes(std::string_view text, std::size_t at, const Lead& lead) {
  if (lead.size == 0) return 0;
  std::size_t count = 1;
  while (count < lead.size && at + count < text.size() &&
         (count == 1 ? is_continuation(text, at + 1, lead.least, lead.most) : is_continuation(text, at + count))) {
    ++count;
  }
  return count;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {0, 0, false};
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.size == 0 || well_formed_bytes(text, at, lead) != lead.size) return {first, 1, false};
  char32_t value = first & (0xffu >> (lead.size + 1));
  for (std::size_t i = 1; i < lead.size; ++i) value = value << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  return {value, lead.size, true};
}

void append_utf8(std::string& text, char32_t value) {
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += static_cast<char>(0xc0 | value >> 6);
    text += static_cast<char>(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    text += static_cast<char>(0xe0 | value >> 12);
    text += static_cast<char>(0x80 | (value >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (value & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | value >> 18);
    text += static_cast<char>(0x80 | (value >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (value >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (value & 0x3f));
  }
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    if (!point.valid) break;
    at += point.size;
  }
  return at;
}

std::string with_replacements(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t fine = valid_prefix(text.substr(at));
    out += text.substr(at, fine);
    at += fine;
    if (at == text.size()) break;
    const std::size_t part = well_formed_bytes(text, at, lead_of(static_cast<unsigned char>(text[at])));
    out += "\xef\xbf\xbd";
    at += part == 0 ? 1 : part;
  }
  return out;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  return is_letter(c) || (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME) ||
         kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || c == 0x200c ||
         c == 0x200d;
}

}  // namespace kullback
