#pragma once

#include <filesystem>

#include "kullback/io/ggml_type.h"
#include "kullback/lm/model.h"

namespace kullback {

/// Writes a GGUF file that llama.cpp loads. `type`: of the matrices (F32, F16, BF16, Q8_0, Q4_0, Q4_1); vectors stay F32, and
/// so do matrices whose rows are not whole blocks of a quantised type, which become F16. Written aside, then renamed.
/// Throws an Error when GGUF has no word for a setting of the model or for its tokenizer, or as save_model.
void save_gguf(const Model& model, const std::filesystem::path& file, GgmlType type);

}  // namespace kullback
