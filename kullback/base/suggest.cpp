#include "kullback/base/suggest.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace kullback {
namespace {

/// Damerau-Levenshtein distance (optimal string alignment): insertions, deletions, substitutions, swaps of neighbours.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) best = &candidate, best_distance = d;
  }
  if (best == nullptr || best_distance > std::max<size_t>(1, std::max(word.size(), best->size()) / 3)) return "";
  return fmt::format(" (did you mean \"{}\"?)", *best);
}

std::string listing(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace kullback
