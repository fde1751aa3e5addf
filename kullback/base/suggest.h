#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kullback {

/// ` (did you mean "beta"?)` for the candidate closest to a mistyped word, or nothing when none is close: at most a third
/// of the word's letters differ (Damerau's distance, so a swapped pair counts once).
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

/// `a, b and c`.
std::string listing(std::span<const std::string> words);

}  // namespace kullback
