#pragma once

#include "kullback/io/gguf_write.h"
#include "kullback/lm/model.h"

namespace kullback {

/// A GGUF file's tokenizer, or nothing when it carries none. Throws an Error naming the file for a kind that is not
/// supported, or when it has more tokens than the embedding has rows.
std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file, const Config& config);

/// Writes the model's tokenizer, special tokens and chat template. Throws an Error naming the part for which GGUF has no
/// word.
void add_tokenizer(GgufWriter& writer, const Model& model);

}  // namespace kullback
