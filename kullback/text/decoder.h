#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kullback/text/normalizer.h"
#include "kullback/text/pre_tokenizer.h"

namespace kullback {

// Steps from tokens back to text. Each takes the list of tokens' texts and gives another.

/// Tokens of a byte-level model: they are bytes already, which belong together.
struct ByteLevelDecoder {};
/// The visible character becomes a space again; the first token's is dropped unless none was prepended.
struct MetaspaceDecoder {
  Metaspace metaspace;
};
/// "<0x41>" becomes its byte.
struct ByteFallbackDecoder {};
/// All tokens become one text.
struct FuseDecoder {};
/// Drops up to so many of a character at each end of every text.
struct StripDecoder {
  std::string content;
  std::size_t start = 0, stop = 0;
};
struct ReplaceDecoder {
  Replace replace;
};
/// The suffix that ends a word becomes a space, or nothing at the end.
struct BpeDecoder {
  std::string suffix;
};
/// Pieces that continue a word join it, others begin one; with `cleanup` no space stands before punctuation.
struct WordPieceDecoder {
  std::string prefix;
  bool cleanup = true;
};

using DecoderStep = std::variant<ByteLevelDecoder, MetaspaceDecoder, ByteFallbackDecoder, FuseDecoder, StripDecoder,
                                 ReplaceDecoder, BpeDecoder, WordPieceDecoder>;

/// With `exact`, bytes come out as they are; else invalid UTF-8 becomes U+FFFD, in the way of the tokenizers library.
std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens, bool exact);

}  // namespace kullback
