#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/io/files.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

// Settings of PEFT that change what an adapter computes, at the values that mean a plain one.
void check_plain(const Json& config, const std::string& source) {
  if (!config.contains("peft_type") || config["peft_type"] != "LORA")
    fail("{}: peft_type is not LORA, the only kind of adapter supported", source);
  const std::pair<const char*, std::vector<Json>> plain[] = {{"use_dora", {false}},
                                                             {"fan_in_fan_out", {false, true}},
                                                             {"bias", {"none"}},
                                                             {"lora_bias", {false}},
                                                             {"modules_to_save", {Json::array()}},
                                                             {"layer_replication", {}},
                                                             {"trainable_token_indices", {}},
                                                             {"target_parameters", {Json::array()}},
                                                             {"use_qalora", {false}},
                                                             {"use_bdlora", {}},
                                                             {"alora_invocation_tokens", {}}};
  for (const auto& [key, values] : plain) {
    if (!config.contains(key) || config[key].is_null()) continue;
    if (std::find(values.begin(), values.end(), config[key]) == values.end()) {
      fail("{}: {} is {}, which is not supported", source, key, config[key].dump());
    }
  }
}

struct RankAndScale {
  int64_t rank = 0;
  double scale = 0;
};

// What PEFT's patterns say of a module, whose keys name the end of modules' names (as regular expressions, of which plain
// names are what it writes).
double pattern_value(const Json& config, const char* key, const std::string& module, double otherwise,
                     const std::string& source) {
  if (!config.contains(key) || config[key].is_null()) return otherwise;
  if (!config[key].is_object()) fail("{}: {} is not an object", source, key);
  for (const auto& [pattern, value] : config[key].items()) {
    if (!value.is_number()) fail("{}: {} of '{}' is {}, which is not a number", source, key, pattern, value.dump());
    if (pattern.find_first_of("^$*+?()[]{}|\\") != std::string::npos)
      fail("{}: {} has the expression '{}': only plain names of modules are supported", source, key, pattern);
    if (module == pattern || module.ends_with("." + pattern)) return value.get<double>();
  }
  return otherwise;
}

RankAndScale rank_and_scale(const Json& config, const std::string& module, const std::string& source) {
  const auto number = [&](const char* key) {
    if (!config.contains(key) || !config[key].is_number()) fail("{}: no number '{}'", source, key);
    return config[key].get<double>();
  };
  const double r = pattern_value(config, "rank_pattern", module, number("r"), source),
               alpha = pattern_value(config, "alpha_pattern", module, number("lora_alpha"), source);
  if (!(r >= 1 && r <= 1 << 20) || r != std::floor(r))
    fail("{}: r is {}, which must be a whole number of at least 1", source, r);
  const bool stable =
      config.contains("use_rslora") && config["use_rslora"] == true;  // Kalajdzievski 2023, arXiv 2312.03732
  return {static_cast<int64_t>(r), alpha / (stable ? std::sqrt(r) : r)};
}

at::Tensor read_matrix(const SafetensorsFile& file, const std::string& name, at::IntArrayRef shape,
                       at::TensorOptions options, std::set<std::string>& used) {
  const TensorBytes& stored = file.tensor(name);
  check_shape(file.name(), name, stored.shape, shape);
  at::Tensor matrix = at::empty(shape, options);
  read_tensor(file.name(), stored, matrix);
  check_finite(file.name(), name, matrix);
  used.insert(name);
  return matrix;
}

// Linear layers that share a tensor share its adapter: the same `a`, and each its rows of `b`.
void put_adapter(Layer& layer, const LayoutEntry& entry, const Config& config, const LowRank& adapter) {
  StoredTensor whole;  // `b` lies as the weight does, but never transposed
  whole.packing = entry.packing == Packing::heads ? Packing::heads : Packing::rows;
  whole.heads = config.heads;
  for (Linear Layer::*member : entry.linears) {
    Linear& linear = layer.*member;
    whole.parts.push_back(at::empty({linear.weight.size(0), adapter.a.size(0)}, linear.weight.options()));
    linear.adapter = LowRank{adapter.a.clone(), whole.parts.back(), adapter.scale};
  }
  unpack(adapter.b, whole);
  for (Linear Layer::*member : entry.linears) {
    (layer.*member).adapter->a.set_requires_grad(true);
    (layer.*member).adapter->b.set_requires_grad(true);
  }
}

}  // namespace

void load_adapter(Transformer& model, const std::filesystem::path& folder) {
  const std::string source = (folder / "adapter_config.json").string();
  const Json config = Json::parse(read_text(source), nullptr, false);
  if (!config.is_object()) fail("{}: not a JSON object", source);
  check_plain(config, source);
  rank_and_scale(config, "", source);

  const SafetensorsFile file = SafetensorsFile::open(folder / "adapter_model.safetensors");
  const Layout& layout = hugging_face_layout(model.config.model_type);
  Transformer adapted = model;
  remove_lora(adapted);
  std::set<std::string> used;
  for (size_t i = 0; i < adapted.layers.size(); ++i) {
    for (const LayoutEntry& entry : layout.entries) {
      if (entry.linears.empty()) continue;
      const std::string module = fmt::format("{}{}.{}", layout.layer, i, entry.module),
                        a = "base_model.model." + module + ".lora_A.weight",
                        b = "base_model.model." + module + ".lora_B.weight";
      if (!file.find(a) && !file.find(b)) continue;
      const at::Tensor& first = (adapted.layers[i].*entry.linears[0]).weight;
      if (!first.defined()) continue;
      int64_t out = 0;
      for (Linear Layer::*linear : entry.linears) out += (adapted.layers[i].*linear).weight.size(0);
      const RankAndScale size = rank_and_scale(config, module, source);
      const at::Tensor down = read_matrix(file, a, {size.rank, first.size(1)}, first.options(), used),
                       up = read_matrix(file, b, {out, size.rank}, first.options(), used);
      put_adapter(adapted.layers[i], entry, model.config, {down, up, size.scale});
    }
  }
  for (const TensorBytes& tensor : file.tensors()) {
    if (!used.contains(tensor.name))
      fail("{}: tensor '{}' belongs to no linear layer of the model", file.name(), tensor.name);
  }
  if (used.empty()) fail("{}: there is no adapter in it", file.name());
  adapted.set_trainable(false);
  model = adapted;
}

}  // namespace kullback
