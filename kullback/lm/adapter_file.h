#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/io/safetensors.h"

namespace kullback {

/// A module of the model that an adapter may change, by its name in the family's files.
struct AdaptableModule {
  std::string name;
  int64_t out = 0, in = 0;
};

/// What a PEFT adapter holds for one module: its change is scale * b a.
struct StoredAdapter {
  size_t module = 0;               ///< which of the modules that were asked for
  const TensorBytes* a = nullptr;  ///< [rank, in]
  const TensorBytes* b = nullptr;  ///< [out, rank]
  int64_t rank = 0;
  double scale = 0;
};

/// Reads adapter_config.json (`config`, named `source` in messages; LoRA; no DoRA, no extra modules) and finds the tensors of
/// every adapted module in adapter_model.safetensors. Throws an Error naming the file and the key or tensor at fault: a setting
/// that is not supported, a tensor that is missing, of a wrong shape or of no module, no adapter at all.
std::vector<StoredAdapter> stored_adapters(std::string_view config, const std::string& source,
                                           const SafetensorsFile& file, const std::vector<AdaptableModule>& modules);

}  // namespace kullback
