#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/io/gguf.h"
#include "kullback/lm/gguf_config.h"
#include "kullback/lm/gguf_tokenizer.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

int64_t token_id(const GgufFile& file, const char* key) {
  return file.metadata().integer(std::string("tokenizer.ggml.") + key, -1);
}

void read_weight(const GgufTensor& tensor, at::Tensor& into) {
  const bool direct = into.scalar_type() == at::kFloat;
  const at::Tensor numbers = direct ? into : at::empty(into.sizes(), at::kFloat);
  dequantize(tensor, {numbers.mutable_data_ptr<float>(), static_cast<size_t>(numbers.numel())});
  if (!direct) into.copy_(numbers);
  release_pages(tensor.bytes);
}

// A file may describe what this transformer is not, a mixture of experts for one.
void check_all_used(const GgufFile& file, const Config& config, const Layout& layout) {
  std::set<std::string> used = stored_names(config, layout);
  used.insert({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"});
  for (const GgufTensor& tensor : file.tensors()) {
    if (!used.contains(tensor.name)) {
      fail("{}: tensor '{}' is not part of a plain {} model", file.name(), tensor.name,
           file.metadata().string("general.architecture"));
    }
  }
}

Transformer transformer_from_gguf(const GgufFile& file, at::ScalarType dtype, WeightType kept) {
  const Config config = config_from_gguf(file);
  const Layout& layout = gguf_layout(config.model_type);
  check_all_used(file, config, layout);
  WeightSource source;
  source.name = file.name();
  source.shape = [&](const std::string& name) { return std::span<const int64_t>(file.tensor(name).shape); };
  source.read = [&](const std::string& name, at::Tensor& into) { read_weight(file.tensor(name), into); };
  return read_weights(config, layout, dtype, source, kept);
}

// The end of a turn stops an answer as the end of a text does.
GenerationDefaults generation_from_gguf(const GgufFile& file, const Config& config) {
  GenerationDefaults defaults;
  for (const int64_t id : {config.eos, token_id(file, "eot_token_id"), token_id(file, "eom_token_id")}) {
    const auto stop = static_cast<int32_t>(id);
    std::vector<int32_t>& all = defaults.stop_ids;
    if (id >= 0 && std::find(all.begin(), all.end(), stop) == all.end()) all.push_back(stop);
  }
  return defaults;
}

}  // namespace

Model read_gguf(const std::filesystem::path& path, at::ScalarType dtype, bool with_weights, WeightType kept) {
  const GgufFile file = GgufFile::open(path);
  Model model;
  model.name = path.string();
  model.transformer = with_weights ? transformer_from_gguf(file, dtype, kept) : shapes_alone(config_from_gguf(file));
  model.tokenizer = tokenizer_from_gguf(file, model.config());
  model.generation = generation_from_gguf(file, model.config());
  set_chat_template(model, file.metadata().string("tokenizer.chat_template", ""));
  return model;
}

}  // namespace kullback
