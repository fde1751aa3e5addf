#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kullback/text/pattern.h"
#include "kullback/text/traced_text.h"

namespace kullback {

/// Splits at the matches of a pattern.
struct Split {
  /// What becomes of a match: a piece of its own; dropped; joined to the piece before or after it; neighbouring ones joined.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  Pattern pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< what lies between the matches is taken for the matches
};

/// Every numeric character (Unicode N*) a piece of its own, or every run of them.
struct Digits {
  bool individual = true;
};

/// GPT-2's own split, for a model over bytes.
struct ByteLevel {
  bool add_prefix_space = false;
  bool use_pattern = true;
};

/// sentencepiece's way: spaces become a visible character, which begins each word.
struct Metaspace {
  enum class Prepend {
    always,
    first,
    never
  };  ///< to every section that does not begin with it; to the text's first alone
  std::string replacement = "\u2581";
  Prepend prepend = Prepend::always;
  bool split = true;
};

/// Splits at white space, which is dropped.
struct WhitespaceSplit {};

/// Runs of word characters, and runs of others that are not white space.
struct Whitespace {};

/// Punctuation (Unicode P*, and what else ASCII has) apart.
struct Punctuation {
  Split::Behavior behavior = Split::Behavior::isolated;
};

/// White space dropped, then each punctuation character apart.
struct BertPreTokenizer {};

using PreTokenizerStep =
    std::variant<Split, Digits, ByteLevel, Metaspace, WhitespaceSplit, Whitespace, Punctuation, BertPreTokenizer>;

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Section& section);

/// The split, and the habits that go with it, that a GGUF file's `tokenizer.ggml.pre` stands for.
struct GgufPreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool compose = false;        ///< text goes to NFC first
  bool ignore_merges = false;  ///< a word that is in the vocabulary is not put together from pieces
  bool add_bos = false;        ///< unless the file says otherwise
};

/// By name: "gpt-2", "smollm", "llama-bpe", "qwen2", … Error with the known names if it is none of them.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name);

}  // namespace kullback
