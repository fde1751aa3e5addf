#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kullback {

/// Texts with a number each, found by what another text begins with.
class ByteTrie {
 public:
  /// Of equal texts the first stays.
  void insert(std::string_view text, std::int32_t number) {
    std::uint32_t node = 0;
    for (const char c : text) {
      const auto [child, is_new] = children_.emplace(key(node, c), static_cast<std::uint32_t>(numbers_.size()));
      if (is_new) numbers_.push_back(-1);
      node = child->second;
    }
    if (numbers_[node] < 0) numbers_[node] = number;
  }

  /// Calls `found(number, end)` for every text that stands at `begin`, the shortest first.
  template <class Found>
  void each_at(std::string_view text, std::size_t begin, Found found) const {
    std::uint32_t node = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      const auto child = children_.find(key(node, text[i]));
      if (child == children_.end()) return;
      node = child->second;
      if (numbers_[node] >= 0) found(numbers_[node], i + 1);
    }
  }

 private:
  static std::uint64_t key(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }

  std::vector<std::int32_t> numbers_{-1};  // of each node; -1: no text ends here
  std::unordered_map<std::uint64_t, std::uint32_t> children_;
};

}  // namespace kullback
