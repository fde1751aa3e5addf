#include <array>
#include <cstring>

#include "kullback/base/error.h"
#include "kullback/text/normalizer.h"

namespace kullback {
namespace {

/// RFC 4648, with or without padding; nothing if a character is not of the alphabet.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const auto value = alphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return out;
}

// A unit of the double array (darts-clone): offset, label, and whether a value hangs below.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

Precompiled::Precompiled(std::string_view base64, std::string_view name) : base64_(base64) {
  const auto bytes = from_base64(base64);
  if (!bytes || bytes->size() < 4) fail("{}: the normalizer's precompiled_charsmap is not base64 of a table", name);
  std::uint32_t size = 0;
  std::memcpy(&size, bytes->data(), 4);
  if (size % 4 != 0 || size > bytes->size() - 4) fail("{}: the normalizer's precompiled_charsmap is cut short", name);
  units_.resize(size / 4);
  if (size != 0) std::memcpy(units_.data(), bytes->data() + 4, size);
  replacements_ = bytes->substr(4 + size);
  replacements_ += '\0';
}

std::optional<std::string_view> Precompiled::replacement(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const std::uint32_t at = value_of(units_[node]);
    if (at >= replacements_.size()) return std::nullopt;
    return std::string_view(replacements_.data() + at);
  }
  return std::nullopt;
}

}  // namespace kullback
