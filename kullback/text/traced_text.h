#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/text/pattern.h"

namespace kullback {

/// A stretch of text on its way through a tokenizer, which knows where in the original each of its bytes came from, if anybody
/// wants to know.
class TracedText {
 public:
  TracedText() = default;
  /// The original's own bytes from byte `base` on. Without `traced`, texts made from this one know no origin.
  TracedText(std::string_view original, std::size_t base, bool traced)
      : text_(original), base_(base), traced_(traced) {}

  const std::string& text() const { return text_; }
  /// Bytes of the original that bytes `range` of this text came from; an empty range gives an empty one.
  ByteRange origin(ByteRange range) const;
  /// The stretch of this text, which knows its origin as before.
  TracedText part(ByteRange range) const;

  /// An empty text to which pieces of this one, or texts in their place, can be appended.
  TracedText rewritten() const;
  /// Text that stands for bytes `source` of `from`.
  void append(std::string_view text, const TracedText& from, ByteRange source);
  /// What a step makes of bytes `source` of `from`, as the tokenizers library accounts for it: each character says how many
  /// it stands for beyond one (`change` -1: two became one) or that it was added (1), and the source's characters are
  /// used up in their order. So a mark that was moved has the place of the one that stands there now.
  struct Changed {
    char32_t value;
    int change;
  };
  void append(const std::vector<Changed>& characters, const TracedText& from, ByteRange source);
  /// Bytes `range` of `from` as they are.
  void append_same(const TracedText& from, ByteRange range);

 private:
  std::string text_;
  std::size_t base_ = 0;
  bool traced_ = false;
  bool own_origins_ = false;        // false: byte i is the original's byte base_ + i
  std::vector<ByteRange> origins_;  // of each byte, where they are kept
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
  bool at_start;  ///< nothing of the original stands before it

  /// One piece, or several if there is invalid UTF-8.
  Section(TracedText whole, bool first);
};

}  // namespace kullback
