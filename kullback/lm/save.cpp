#include "kullback/lm/save.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/lm/layout.h"

namespace kullback {
namespace {

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> held;  // where a tensor is no plain array in memory, its copy must outlive the writing
  std::vector<TensorBytes> entries;
  for (const NamedTensor& named : tensors) {
    const at::Tensor plain = held.emplace_back(named.tensor.detach().cpu().contiguous());
    entries.push_back({named.name,
                       stored_dtype(plain),
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

// An adapter as PEFT sees it: by the modules of the family's own implementation.
struct SavedAdapter {
  std::vector<NamedTensor> tensors;
  std::vector<std::string> modules;  // names that have one
  Json ranks = Json::object(), alphas = Json::object();
};

// The adapters of layers that share one tensor become one of the sum of their ranks: each `a` above the other, each `b`
// in its own rows and columns, which is the same change of the weight.
LowRank joined_adapter(const Layer& layer, const LayoutEntry& entry, const Config& config) {
  std::vector<at::Tensor> a;
  int64_t rank = 0, column = 0;
  double scale = 1;
  for (Linear Layer::*linear : entry.linears) {
    if (!(layer.*linear).adapter) continue;
    rank += (layer.*linear).adapter->a.size(0);
    scale = (layer.*linear).adapter->scale;
    a.push_back((layer.*linear).adapter->a);
  }
  if (a.empty()) return {};
  StoredTensor b;
  b.packing = entry.packing == Packing::heads ? Packing::heads : Packing::rows;
  b.heads = config.heads;
  for (Linear Layer::*linear : entry.linears) {
    at::Tensor part = at::zeros({(layer.*linear).weight.size(0), rank}, a[0].options().requires_grad(false));
    if (const auto& adapter = (layer.*linear).adapter) {
      // Scales differ when layers were given different ones; the joined adapter has one.
      part.narrow(1, column, adapter->b.size(1)).copy_(adapter->b * (adapter->scale / scale));
      column += adapter->b.size(1);
    }
    b.parts.push_back(part);
  }
  return {at::cat(a), pack(b), scale};
}

SavedAdapter adapter_by_modules(const Transformer& model, const LoraOptions& options) {
  const at::NoGradGuard no_grad;
  const Layout& layout = hugging_face_layout(model.config.model_type);
  SavedAdapter saved;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const LayoutEntry& entry : layout.entries) {
      const LowRank adapter = joined_adapter(model.layers[i], entry, model.config);
      if (!adapter.a.defined()) continue;
      const std::string module = fmt::format("base_model.model.{}{}.{}", layout.layer, i, entry.module);
      saved.tensors.push_back({module + ".lora_A.weight", adapter.a});
      saved.tensors.push_back({module + ".lora_B.weight", adapter.b});
      // The last word alone, as people write it, unless two modules end in it (GPT-2's c_proj).
      const std::string full = entry.module, last = full.substr(full.rfind('.') + 1);
      const auto same = std::count_if(layout.entries.begin(), layout.entries.end(), [&](const LayoutEntry& other) {
        return !other.linears.empty() && std::string(other.module).ends_with(last);
      });
      const std::string target = same > 1 ? full : last;
      if (std::find(saved.modules.begin(), saved.modules.end(), target) != saved.modules.end()) continue;
      saved.modules.push_back(target);
      const int64_t rank = adapter.a.size(0);
      const double alpha = adapter.scale * static_cast<double>(rank);
      if (rank != options.rank) saved.ranks[target] = rank;
      if (alpha != options.alpha) saved.alphas[target] = alpha;
    }
  }
  return saved;
}

}  // namespace

DType stored_dtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return DType::f64;
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    default: throw std::logic_error("weights of a type that safetensors files do not hold");
  }
}

void save_model(const Model& model, const std::filesystem::path& folder) {
  if (!model.transformer.adapter().empty())
    throw std::logic_error("save_model: merge the adapter first, or save it by itself");
  NewFolder aside(folder);
  write_json(aside.path() / "config.json", config_json(model.transformer));
  write_json(aside.path() / "generation_config.json", generation_json(model.config(), model.generation));
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& stored : stored_tensors(model.transformer, hugging_face_layout(model.config().model_type))) {
    tensors.push_back({stored.name, pack(stored).detach()});
  }
  write_tensors(aside.path() / "model.safetensors", tensors);
  if (model.tokenizer) {
    write_json(aside.path() / "tokenizer.json", model.tokenizer->to_json());
    write_json(aside.path() / "tokenizer_config.json", model.tokenizer->config_json(model.jinja));
    write_json(aside.path() / "special_tokens_map.json", special_tokens_json(*model.tokenizer));
  }
  aside.commit();
}

void save_adapter(const Transformer& model, const std::filesystem::path& folder, const std::string& base_model) {
  const LoraOptions options = lora_options(model);
  const SavedAdapter saved = adapter_by_modules(model, options);
  const Layout& layout = hugging_face_layout(model.config.model_type);
  const bool transposed = std::any_of(layout.entries.begin(), layout.entries.end(),
                                      [](const LayoutEntry& entry) { return entry.packing == Packing::transposed; });
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base_model},
                       {"r", options.rank},
                       {"lora_alpha", options.alpha},
                       {"rank_pattern", saved.ranks},
                       {"alpha_pattern", saved.alphas},
                       {"lora_dropout", 0.0},
                       {"target_modules", saved.modules},
                       {"bias", "none"},
                       {"fan_in_fan_out", transposed},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"init_lora_weights", true},
                       {"modules_to_save", nullptr},
                       {"inference_mode", true}};
  NewFolder aside(folder);
  write_json(aside.path() / "adapter_config.json", config);
  write_tensors(aside.path() / "adapter_model.safetensors", saved.tensors);
  aside.commit();
}

}  // namespace kullback
