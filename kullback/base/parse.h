#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace kullback {

/// The number that a text is, all of it, or nothing. `Number`: double or an integer type; out of its range is nothing.
template <class Number = double>
std::optional<Number> parsed_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The text without its spaces.
inline std::string without_spaces(std::string_view text) {
  std::string compact(text);
  std::erase(compact, ' ');
  return compact;
}

}  // namespace kullback
