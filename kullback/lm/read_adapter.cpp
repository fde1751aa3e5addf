#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/io/files.h"
#include "kullback/lm/adapter_file.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

at::Tensor read_matrix(const SafetensorsFile& file, const TensorBytes& stored, at::TensorOptions options) {
  at::Tensor matrix = at::empty(stored.shape, options);
  read_tensor(file.name(), stored, matrix);
  check_finite(file.name(), stored.name, matrix);
  return matrix;
}

// Linear layers that share a tensor share its adapter: the same `a`, and each its rows of `b`.
void put_adapter(Layer& layer, const LayoutEntry& entry, const Config& config, const LowRank& adapter) {
  StoredTensor whole;  // `b` lies as the weight does, but never transposed
  whole.packing = entry.packing == Packing::heads ? Packing::heads : Packing::rows;
  whole.heads = config.heads;
  for (Linear Layer::*member : entry.linears) {
    Linear& linear = layer.*member;
    whole.parts.push_back(at::empty({linear.weight.size(0), adapter.a.size(0)}, adapter.b.options()));
    linear.adapter = LowRank{adapter.a.clone(), whole.parts.back(), adapter.scale};
  }
  unpack(adapter.b, whole);
  for (Linear Layer::*member : entry.linears) {
    (layer.*member).adapter->a.set_requires_grad(true);
    (layer.*member).adapter->b.set_requires_grad(true);
  }
}

// The linear layers of one tensor of the family's files.
struct Place {
  size_t layer;
  const LayoutEntry* entry;
};

}  // namespace

void load_adapter(Transformer& model, const std::filesystem::path& folder) {
  const std::string source = (folder / "adapter_config.json").string(), config = read_text(source);
  const SafetensorsFile file = SafetensorsFile::open(folder / "adapter_model.safetensors");
  const Layout& layout = hugging_face_layout(model.config.model_type);
  Transformer adapted = model;
  remove_lora(adapted);
  std::vector<AdaptableModule> modules;
  std::vector<Place> places;
  for (size_t i = 0; i < adapted.layers.size(); ++i) {
    for (const LayoutEntry& entry : layout.entries) {
      if (entry.linears.empty() || !(adapted.layers[i].*entry.linears[0]).weight.defined()) continue;
      AdaptableModule module{.name = fmt::format("{}{}.{}", layout.layer, i, entry.module)};
      for (Linear Layer::*linear : entry.linears) module.out += (adapted.layers[i].*linear).weight.size(0);
      module.in = row_length((adapted.layers[i].*entry.linears[0]).weight);
      modules.push_back(std::move(module));
      places.push_back({i, &entry});
    }
  }
  const at::TensorOptions options = model.final_norm.weight.options();  // the base weights may be kept short
  for (const StoredAdapter& stored : stored_adapters(config, source, file, modules)) {
    const Place& place = places[stored.module];
    put_adapter(adapted.layers[place.layer], *place.entry, model.config,
                {read_matrix(file, *stored.a, options), read_matrix(file, *stored.b, options), stored.scale});
  }
  adapted.set_trainable(false);
  model = adapted;
}

}  // namespace kullback
