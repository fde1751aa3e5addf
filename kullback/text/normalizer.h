#pragma once

#include <variant>
#include <vector>

#include "kullback/text/traced_text.h"

namespace kullback {

/// Unicode normalisation form (Unicode Standard Annex 15).
struct UnicodeForm {
  bool compose = true;         ///< NFC, NFKC; else NFD, NFKD
  bool compatibility = false;  ///< NFKC, NFKD
};

/// One step that rewrites a text before it is split.
using NormalizerStep = std::variant<UnicodeForm>;

/// The text after all steps. Invalid UTF-8 is left as it is.
TracedText normalize(const std::vector<NormalizerStep>& steps, TracedText text);

}  // namespace kullback
