#include "kullback/lm/save.h"

#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/safetensors.h"

namespace kullback {
namespace {

DType stored_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return DType::f64;
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    default: throw std::logic_error("weights of a type that safetensors files do not hold");
  }
}

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> held;  // where a tensor is no plain array in memory, its copy must outlive the writing
  std::vector<TensorBytes> entries;
  for (const NamedTensor& named : tensors) {
    const at::Tensor plain = held.emplace_back(named.tensor.detach().cpu().contiguous());
    entries.push_back({named.name,
                       stored_type(plain),
                       plain.sizes().vec(),
                       {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}});
  }
  write_safetensors(path, entries, {{"format", "pt"}});
}

void write_json(const std::filesystem::path& path, const Json& json) { write_file(path, json.dump(2) + "\n"); }

const char* type_name(at::ScalarType type) {
  return type == at::kDouble ? "float64" : type == at::kFloat ? "float32" : type == at::kHalf ? "float16" : "bfloat16";
}

Json config_json(const Transformer& transformer) {
  Json json = config_to_json(transformer.config);
  json["torch_dtype"] = type_name(transformer.dtype());
  return json;
}

Json generation_json(const Config& config, const GenerationDefaults& defaults) {
  Json json = Json::object();
  if (config.bos >= 0) json["bos_token_id"] = config.bos;
  if (config.pad >= 0) json["pad_token_id"] = config.pad;
  if (defaults.stop_ids.size() == 1) json["eos_token_id"] = defaults.stop_ids[0];
  if (defaults.stop_ids.size() > 1) json["eos_token_id"] = defaults.stop_ids;
  if (defaults.temperature || defaults.top_p || defaults.top_k) json["do_sample"] = true;
  if (defaults.temperature) json["temperature"] = *defaults.temperature;
  if (defaults.top_p) json["top_p"] = *defaults.top_p;
  if (defaults.top_k) json["top_k"] = *defaults.top_k;
  return json;
}

Json special_tokens_json(const Tokenizer& tokenizer) {
  Json json = Json::object();
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (id) json[key] = tokenizer.token_bytes(*id);
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("pad_token", tokenizer.pad());
  name("unk_token", tokenizer.unknown());
  return json;
}

}  // namespace

void save_model(const Model& model, const std::filesystem::path& folder) {
  if (!model.transformer.adapter().empty())
    throw std::logic_error("save_model: merge the adapter first, or save it by itself");
  NewFolder aside(folder);
  write_json(aside.path() / "config.json", config_json(model.transformer));
  write_json(aside.path() / "generation_config.json", generation_json(model.config(), model.generation));
  write_tensors(aside.path() / "model.safetensors", model.transformer.parameters());
  if (model.tokenizer) {
    write_json(aside.path() / "tokenizer.json", model.tokenizer->to_json());
    write_json(aside.path() / "tokenizer_config.json", model.tokenizer->config_json(model.jinja));
    write_json(aside.path() / "special_tokens_map.json", special_tokens_json(*model.tokenizer));
  }
  aside.commit();
}

void save_adapter(const Transformer& model, const std::filesystem::path& folder, const std::string& base_model) {
  const LoraOptions options = lora_options(model);
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base_model},
                       {"r", options.rank},
                       {"lora_alpha", options.alpha},
                       {"lora_dropout", 0.0},
                       {"target_modules", options.targets},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"init_lora_weights", true},
                       {"modules_to_save", nullptr},
                       {"inference_mode", true}};
  NewFolder aside(folder);
  write_json(aside.path() / "adapter_config.json", config);
  write_tensors(aside.path() / "adapter_model.safetensors", model.adapter());
  aside.commit();
}

}  // namespace kullback
