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
                                                             {"fan_in_fan_out", {false}},
                                                             {"bias", {"none"}},
                                                             {"lora_bias", {false}},
                                                             {"rank_pattern", {Json::object()}},
                                                             {"alpha_pattern", {Json::object()}},
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

double scale_of(const Json& config, const std::string& source, int64_t& rank) {
  const auto number = [&](const char* key) {
    if (!config.contains(key) || !config[key].is_number()) fail("{}: no number '{}'", source, key);
    return config[key].get<double>();
  };
  const double r = number("r"), alpha = number("lora_alpha");
  if (!(r >= 1 && r <= 1 << 20) || r != std::floor(r))
    fail("{}: r is {}, which must be a whole number of at least 1", source, r);
  rank = static_cast<int64_t>(r);
  const bool stable =
      config.contains("use_rslora") && config["use_rslora"] == true;  // Kalajdzievski 2023, arXiv 2312.03732
  return alpha / (stable ? std::sqrt(r) : r);
}

at::Tensor read_matrix(const SafetensorsFile& file, const std::string& name, at::IntArrayRef shape,
                       at::TensorOptions options, std::set<std::string>& used) {
  const TensorBytes& stored = file.tensor(name);
  check_shape(file.name(), name, stored.shape, shape);
  at::Tensor matrix = at::empty(shape, options);
  read_tensor(file.name(), stored, matrix);
  check_finite(file.name(), name, matrix);
  used.insert(name);
  return matrix.set_requires_grad(true);
}

}  // namespace

void load_adapter(Transformer& model, const std::filesystem::path& folder) {
  const std::string source = (folder / "adapter_config.json").string();
  const Json config = Json::parse(read_text(source), nullptr, false);
  if (!config.is_object()) fail("{}: not a JSON object", source);
  check_plain(config, source);
  int64_t rank = 0;
  const double scale = scale_of(config, source, rank);

  const SafetensorsFile file = SafetensorsFile::open(folder / "adapter_model.safetensors");
  Transformer adapted = model;
  remove_lora(adapted);
  std::set<std::string> used;
  for (size_t i = 0; i < adapted.layers.size(); ++i) {
    for (const NamedLinear& named : layer_linears()) {
      const std::string module = fmt::format("base_model.model.model.layers.{}.{}", i, named.module);
      const std::string a = module + ".lora_A.weight", b = module + ".lora_B.weight";
      if (!file.find(a) && !file.find(b)) continue;
      Linear& linear = adapted.layers[i].*named.linear;
      const at::TensorOptions options = linear.weight.options();
      linear.adapter = LowRank{read_matrix(file, a, {rank, linear.weight.size(1)}, options, used),
                               read_matrix(file, b, {linear.weight.size(0), rank}, options, used), scale};
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
