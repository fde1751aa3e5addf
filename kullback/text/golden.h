#pragma once

#include <string>

#include "kullback/base/json.h"
#include "kullback/text/tokenizer.h"

namespace kullback {

/// Compares one case of a tokenizer fixture with what the tokenizer does: its `ids`, and of `ids_with_special`, `offsets`
/// (code points), `decoded` and `decoded_skip_special` those that are there. A case without any of these must decode to its
/// own `text`; one with `normalized_added` may decode otherwise. "" if all is as expected, else what differs.
std::string golden_difference(const Tokenizer& tokenizer, const Json& one);

/// The same for two texts together: `text`, `pair`, `ids_with_special`, `type_ids`.
std::string golden_pair_difference(const Tokenizer& tokenizer, const Json& one);

}  // namespace kullback
