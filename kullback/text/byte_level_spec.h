#pragma once

#include <string>
#include <vector>

#include "kullback/text/tokenizer.h"

namespace kullback {

/// A byte-level tokenizer made of nothing but merges: token i is byte i, then comes what each merge ("left right", in the byte
/// alphabet) makes, then control tokens. For self-tests and tiny models.
BpeSpec byte_level_spec(std::string name, std::vector<std::string> merges = {},
                        const std::vector<std::string>& controls = {}, std::string pre_tokenizer = "gpt2");

}  // namespace kullback
