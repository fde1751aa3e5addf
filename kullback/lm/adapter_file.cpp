// PEFT's adapter_config.json, and which tensors of adapter_model.safetensors it speaks of.
#include "kullback/lm/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/lm/check_shape.h"

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

const TensorBytes* checked(const SafetensorsFile& file, const std::string& name, std::vector<int64_t> shape) {
  const TensorBytes& stored = file.tensor(name);
  check_shape(file.name(), name, stored.shape, shape);
  return &stored;
}

}  // namespace

std::vector<StoredAdapter> stored_adapters(std::string_view text, const std::string& source,
                                           const SafetensorsFile& file, const std::vector<AdaptableModule>& modules) {
  const Json config = Json::parse(text, nullptr, false);
  if (!config.is_object()) fail("{}: not a JSON object", source);
  check_plain(config, source);
  rank_and_scale(config, "", source);
  std::vector<StoredAdapter> adapters;
  std::set<std::string> used;
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string name = "base_model.model." + modules[i].name, a = name + ".lora_A.weight",
                      b = name + ".lora_B.weight";
    if (!file.find(a) && !file.find(b)) continue;
    const auto [rank, scale] = rank_and_scale(config, modules[i].name, source);
    adapters.push_back(
        {i, checked(file, a, {rank, modules[i].in}), checked(file, b, {modules[i].out, rank}), rank, scale});
    used.insert({a, b});
  }
  for (const TensorBytes& tensor : file.tensors()) {
    if (!used.contains(tensor.name))
      fail("{}: tensor '{}' belongs to no linear layer of the model", file.name(), tensor.name);
  }
  if (adapters.empty()) fail("{}: there is no adapter in it", file.name());
  return adapters;
}

}  // namespace kullback
