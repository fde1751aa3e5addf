#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kullback {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// A regular expression over Unicode text, as tokenizers write them (look-ahead, `\p{L}`, `(?i:…)`). Cheap to copy; may be used by
/// several threads at once.
class Pattern {
 public:
  /// Error naming the expression and the place if it is not well-formed.
  explicit Pattern(std::string_view expression);
  /// Matches this very text.
  static Pattern literal(std::string_view text);

  const std::string& expression() const { return expression_; }
  bool is_literal() const { return compiled_ == nullptr; }
  /// All matches, left to right, none overlapping, empty ones left out. `text` is well-formed UTF-8. Error if the expression
  /// takes too many steps on this text.
  std::vector<ByteRange> matches(std::string_view text) const;

 private:
  Pattern() = default;
  std::string expression_;
  std::shared_ptr<void> compiled_;
};

}  // namespace kullback
