#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/text/added_tokens.h"
#include "kullback/text/bpe.h"
#include "kullback/text/decoder.h"
#include "kullback/text/normalizer.h"
#include "kullback/text/pre_tokenizer.h"
#include "kullback/text/unigram.h"

namespace kullback {

/// Tokens that mean something to the model or to a trainer; absent where the model names none.
struct SpecialIds {
  std::optional<std::int32_t> bos, eos, pad, unknown;
};

/// Byte-level BPE as a GGUF file carries it (`tokenizer.ggml.model` = "gpt2").
struct BpeSpec {
  std::string name;                 ///< of the file, for messages
  std::vector<std::string> tokens;  ///< `tokens`: normal ones in the byte alphabet, the others as they read
  std::vector<std::string> merges;  ///< `merges`: "left right", first merged first
  std::vector<std::int64_t>
      types;  ///< `token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty: all normal
  std::string pre_tokenizer;  ///< `pre`: "gpt2", "smollm", "llama-bpe", "qwen2", …
  SpecialIds special;
  std::optional<bool> add_bos,
      add_eos;  ///< what add_special() puts around a text; absent: as the pre-tokeniser's models do
  bool add_prefix_space = false;
};

/// SentencePiece BPE as a GGUF file carries it (`tokenizer.ggml.model` = "llama"): no merges, but a score for each piece.
struct SentencePieceSpec {
  std::string name;                 ///< of the file, for messages
  std::vector<std::string> tokens;  ///< `tokens`: with ▁ for a space, and "<0x00>" to "<0xFF>" for bytes
  std::vector<double> scores;       ///< `scores`
  std::vector<std::int64_t> types;  ///< `token_type`, as above
  SpecialIds special;
  std::optional<bool> add_bos, add_eos;  ///< absent: a beginning, no end
  bool add_space_prefix = true;          ///< `add_space_prefix`
};

using WordModel = std::variant<BpeModel, UnigramModel, WordPieceModel>;

/// One part of what is put together for the model: the first text, the second, or special tokens.
struct TemplateItem {
  enum class Kind { first, second, special } kind;
  std::vector<std::int32_t> ids;  ///< of the special tokens
  std::int32_t type_id = 0;
};

/// What goes around one text and around two. Empty: nothing does.
struct PostProcessor {
  std::vector<TemplateItem> single, pair;
  bool byte_level = false;                              ///< a step that only settles offsets is there
  bool trim_offsets = false, add_prefix_space = false;  ///< offsets leave out the spaces at a token's ends
};

/// All parts of a tokenizer: find added tokens, normalise, split, encode the pieces, put together; and the way back.
struct TokenizerParts {
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  WordModel model;
  PostProcessor post_processor;
  std::vector<DecoderStep> decoder;  ///< empty: tokens are joined with spaces
  SpecialIds special;
};

/// Token ids with the bytes [begin, end) of the text that each came from.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<ByteRange> ranges;
};

/// Text to token ids and back. A value: cheap to copy, never changes, may be used by several threads at once.
class Tokenizer {
 public:
  /// Error naming the file if merges name unknown tokens, the pre-tokeniser is not known, or an id is not in the vocabulary.
  explicit Tokenizer(const BpeSpec& spec);
  explicit Tokenizer(const SentencePieceSpec& spec);
  explicit Tokenizer(TokenizerParts parts, std::string_view name);
  /// From a tokenizer.json (Hugging Face tokenizers) and, for the special tokens, the tokenizer_config.json beside it (may be
  /// empty). `name` stands in messages. Error if it is not JSON, or has a part that is not known, or parts at odds.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view config_json, std::string_view name);

  /// Ids of a text, nothing added to it. Bytes that are no UTF-8 are encoded one by one. Special tokens written in the
  /// text are recognised unless `parse_special` is false (text from outside that must not steer the model).
  std::vector<std::int32_t> encode(std::string_view text, bool parse_special = true) const;
  Encoding encode_with_ranges(std::string_view text, bool parse_special = true) const;
  /// The ids with the tokens around them that the model expects of plain text (chat templates write their own); a
  /// beginning or end that is there already is not doubled.
  std::vector<std::int32_t> add_special(std::vector<std::int32_t> ids) const;
  /// Ids of one text or two, put together as the post-processor says, with the type of each (0: first, 1: second).
  struct Together {
    std::vector<std::int32_t> ids, type_ids;
  };
  Together put_together(std::span<const std::int32_t> first) const;
  Together put_together(std::span<const std::int32_t> first, std::span<const std::int32_t> second) const;
  /// The ids of many texts, on as many threads as there are processors (or `threads`).
  std::vector<std::vector<std::int32_t>> encode_all(std::span<const std::string> texts, bool parse_special = true,
                                                    int threads = 0) const;
  /// Where each token stands, as the tokenizers library counts: [begin, end) in code points of the text.
  std::vector<ByteRange> offsets(std::string_view text, const Encoding& encoding) const;

  /// The exact bytes of the ids, which are UTF-8 if the ids end where a character ends (with_replacements() makes any
  /// bytes printable). Error if an id is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  /// The same as text for people: where the bytes are no UTF-8 stands U+FFFD.
  std::string decode_text(std::span<const std::int32_t> ids, bool skip_special = false) const;
  std::string token_bytes(std::int32_t id) const;

  std::int64_t vocabulary_size() const;  ///< largest id + 1
  std::optional<std::int32_t> token_id(
      std::string_view text) const;  ///< added token, or vocabulary entry as it is spelt there
  bool is_special(std::int32_t id) const;
  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  std::optional<std::int32_t> pad() const;
  std::optional<std::int32_t> unknown() const;

  const TokenizerParts& parts() const;
  /// A tokenizer.json (Hugging Face tokenizers) that gives the same ids.
  Json to_json() const;
  /// A tokenizer_config.json to go with it; `chat_template` (Jinja) may be empty.
  Json config_json(std::string_view chat_template = {}) const;

 private:
  std::string decode(std::span<const std::int32_t> ids, bool skip_special, bool exact) const;

  struct Made;
  std::shared_ptr<const Made> made_;
};

}  // namespace kullback
