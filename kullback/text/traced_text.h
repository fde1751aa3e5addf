#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/text/pattern.h"

namespace kullback {

/// A stretch of text on its way through a tokenizer, which knows where in the original each of its bytes came from.
class TracedText {
 public:
  TracedText() = default;
  /// The original's own bytes from byte `base` on.
  TracedText(std::string_view original, std::size_t base) : text_(original), base_(base) {}

  const std::string& text() const { return text_; }
  /// Bytes of the original that bytes `range` of this text came from; an empty range gives an empty one.
  ByteRange origin(ByteRange range) const;

  /// The stretch of this text, which knows its origin as before.
  TracedText part(ByteRange range) const;
  void append(std::string_view text, ByteRange origin);

 private:
  std::string text_;
  std::size_t base_ = 0;
  std::vector<ByteRange> origins_;  // of each byte; empty: byte i is the original's byte base_ + i
};

/// A stretch of a section that splitting has come to. Bytes that are no UTF-8 stand alone in pieces of their own, which no
/// step touches, so that every text can be encoded and comes back as it was.
struct Piece {
  ByteRange range;
  bool valid = true;
};

/// Text between two added tokens, with the pieces that it has been split into.
struct Section {
  TracedText text;
  std::vector<Piece> pieces;
  bool at_start = true;  ///< no token stands before it

  /// One piece, or several if there is invalid UTF-8.
  Section(TracedText whole, bool first);
};

}  // namespace kullback
