#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kullback/lm/model.h"

namespace kullback {

/// How many numbers of a checkpoint are stored in one type.
struct StoredType {
  std::string name;  ///< "BF16", "Q4_K", ...
  int64_t tensors = 0, numbers = 0, bytes = 0;
};

/// A model without its weights.
struct ModelDescription {
  Model model;         ///< its tensors are on the meta device: shapes alone
  std::string format;  ///< "GGUF version 3" or "Hugging Face folder"
  std::vector<StoredType> types = {};
  int64_t parameters = 0;
  int64_t float32_bytes = 0;                   ///< of the weights as they are loaded
  int64_t bfloat16_bytes = 0, int8_bytes = 0;  ///< of them as generation may keep them (weights.h)
  int64_t cache_bytes_a_token = 0;             ///< keys and values of all layers, float32
};

/// Reads all but the weights. Errors as load_model.
ModelDescription describe_model(const std::string& name_or_path);

}  // namespace kullback
