#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kullback/text/pattern.h"
#include "kullback/text/traced_text.h"

namespace kullback {

/// Unicode normalisation form (Unicode Standard Annex 15).
struct UnicodeForm {
  bool compose = true;         ///< NFC, NFKC; else NFD, NFKD
  bool compatibility = false;  ///< NFKC, NFKD
};

/// Puts a text before every text that is not empty.
struct Prepend {
  std::string text;
};

struct Replace {
  Pattern pattern;
  std::string content;
};

/// Drops white space at the ends.
struct StripSpace {
  bool left = true, right = true;
};

struct Lowercase {};

/// Drops combining marks (Unicode M*).
struct StripAccents {};

/// The character clean-up of sentencepiece's `nmt` rules: control characters go, exotic blanks become spaces.
struct Nmt {};

/// BERT's clean-up (Devlin et al. 2019, arXiv 1810.04805, as its tokenizer does it).
struct BertNormalizer {
  bool clean_text = true;             ///< control characters go, white space becomes spaces
  bool handle_chinese_chars = true;   ///< spaces around ideographs
  std::optional<bool> strip_accents;  ///< drops nonspacing marks; absent: as lowercase
  bool lowercase = true;
};

/// sentencepiece's table of replacements: a double array (Aoe 1989) over the texts to be replaced, and the replacements.
class Precompiled {
 public:
  /// `base64`: `precompiled_charsmap` of tokenizer.json. Error, naming `name`, if it is damaged.
  Precompiled(std::string_view base64, std::string_view name);
  /// What the shortest beginning of `text` that is in the table becomes; nothing if none is.
  std::optional<std::string_view> replacement(std::string_view text) const;
  const std::string& base64() const { return base64_; }

 private:
  std::string base64_;
  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends in a zero byte
};

/// One step that rewrites a text before it is split.
using NormalizerStep = std::variant<UnicodeForm, Prepend, Replace, StripSpace, Lowercase, StripAccents, Nmt,
                                    BertNormalizer, std::shared_ptr<const Precompiled>>;

/// The text after all steps. Invalid UTF-8 is left as it is.
TracedText normalize(const std::vector<NormalizerStep>& steps, TracedText text);

}  // namespace kullback
