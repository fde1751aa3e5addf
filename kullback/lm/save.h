#pragma once

#include <filesystem>
#include <string>

#include "kullback/io/safetensors.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"

namespace kullback {

/// Writes a Hugging Face folder that transformers, vLLM and others load: config.json, model.safetensors,
/// generation_config.json and, when the model has a tokenizer, tokenizer.json, tokenizer_config.json and
/// special_tokens_map.json. Written aside, then renamed. Adapters are not in it: merge first, or save them by
/// themselves. Throws an Error when the folder exists and is not empty, or the disk is full.
void save_model(const Model& model, const std::filesystem::path& folder);

/// Writes the adapter as PEFT does (adapter_config.json, adapter_model.safetensors). `base_model` is what PEFT is told
/// to load underneath. Throws an Error when the model has no adapter, or as save_model.
void save_adapter(const Transformer& model, const std::filesystem::path& folder, const std::string& base_model);

/// The type in a safetensors file of a tensor's numbers. Throws std::logic_error for a type that such files do not hold.
DType stored_dtype(const at::Tensor& tensor);

}  // namespace kullback
