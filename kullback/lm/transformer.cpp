#include "kullback/lm/transformer.h"

#include <numeric>
#include <stdexcept>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/attention.h"
#include "kullback/lm/elementwise.h"
#include "kullback/lm/rotary.h"

namespace kullback {
namespace {

void check(const Ragged& batch, const Config& config) {
  const int64_t tokens = std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
  if (batch.ids.dim() != 1 || batch.ids.size(0) != tokens || tokens == 0) {
    throw std::logic_error("Ragged: the lengths do not sum to the number of ids");
  }
  if (!batch.caches.empty() && batch.caches.size() != batch.lengths.size()) {
    throw std::logic_error("Ragged: there must be one cache a sequence, or none");
  }
  if (!batch.caches.empty() && at::GradMode::is_enabled()) {
    throw std::logic_error("Ragged: caches are used without gradients only");
  }
  const auto [least, largest] = at::aminmax(batch.ids);
  for (const int64_t id : {least.item<int64_t>(), largest.item<int64_t>()}) {
    if (id < 0 || id >= config.vocabulary_size) {
      fail("token id {} is outside the model's vocabulary of {}", id, config.vocabulary_size);
    }
  }
}

std::vector<int64_t> positions(const Ragged& batch) {
  std::vector<int64_t> result;
  result.reserve(static_cast<size_t>(batch.ids.size(0)));
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const int64_t first = batch.caches.empty() ? 0 : batch.caches[i]->length();
    for (int64_t t = 0; t < batch.lengths[i]; ++t) result.push_back(first + t);
  }
  return result;
}

at::Tensor self_attention(const Layer& layer, const at::Tensor& x, const Config& config, const Ragged& batch,
                          const Rotation& turns, int64_t index, AdapterUse use) {
  const at::Tensor query = layer.query(x, use).view({-1, config.heads, config.head_size});
  const at::Tensor key = layer.key(x, use).view({-1, config.key_value_heads, config.head_size});
  const at::Tensor value = layer.value(x, use).view({-1, config.key_value_heads, config.head_size});
  const at::Tensor mixed =
      ragged_attention(rotate(query, turns), rotate(key, turns), value, batch.lengths, batch.caches, index);
  return layer.output(mixed, use);
}

at::Tensor clone_weight(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().clone() : tensor; }

std::string layer_prefix(size_t index) { return fmt::format("model.layers.{}.", index); }

}  // namespace

Ragged ragged(const std::vector<std::vector<int32_t>>& sequences) {
  Ragged batch;
  std::vector<int64_t> ids;
  for (const std::vector<int32_t>& sequence : sequences) {
    if (sequence.empty()) fail("a sequence without a token cannot be given to a model");
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    batch.lengths.push_back(static_cast<int64_t>(sequence.size()));
  }
  batch.ids = at::tensor(ids, at::kLong);
  return batch;
}

at::Tensor Transformer::hidden(const Ragged& batch, AdapterUse use) const {
  check(batch, config);
  const Rotation turns = rotation(config.rope, config.head_size, positions(batch), dtype());
  at::Tensor x = at::embedding(embedding, batch.ids);  // [N, D]
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const at::Tensor attention_input = rms_norm(x, layer.attention_norm, config.norm_epsilon);
    x = self_attention(layer, attention_input, config, batch, turns, static_cast<int64_t>(i), use).add_(x);
    const at::Tensor mlp_input = rms_norm(x, layer.mlp_norm, config.norm_epsilon);
    x = layer.down(swiglu(layer.gate(mlp_input, use), layer.up(mlp_input, use)), use).add_(x);
  }
  return rms_norm(x, final_norm, config.norm_epsilon);
}

Rows Transformer::head_rows(const at::Tensor& hidden) const {
  Rows rows;
  rows.hidden = hidden;
  rows.weight = head;
  return rows;
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const { return at::linear(hidden, head); }

std::vector<NamedTensor> Transformer::parameters() const {
  std::vector<NamedTensor> result = {{"model.embed_tokens.weight", embedding}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string prefix = layer_prefix(i);
    result.push_back({prefix + "input_layernorm.weight", layers[i].attention_norm});
    for (const NamedLinear& named : layer_linears()) {
      const Linear& linear = layers[i].*named.linear;
      result.push_back({prefix + named.module + ".weight", linear.weight});
      if (linear.bias.defined()) result.push_back({prefix + named.module + ".bias", linear.bias});
    }
    result.push_back({prefix + "post_attention_layernorm.weight", layers[i].mlp_norm});
  }
  result.push_back({"model.norm.weight", final_norm});
  if (!config.tied_head) result.push_back({"lm_head.weight", head});
  return result;
}

std::vector<NamedTensor> Transformer::adapter() const {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const NamedLinear& named : layer_linears()) {
      const Linear& linear = layers[i].*named.linear;
      if (!linear.adapter) continue;
      const std::string module = "base_model.model." + layer_prefix(i) + named.module;
      result.push_back({module + ".lora_A.weight", linear.adapter->a});
      result.push_back({module + ".lora_B.weight", linear.adapter->b});
    }
  }
  return result;
}

std::vector<NamedTensor> Transformer::trainable() const {
  std::vector<NamedTensor> result;
  for (const std::vector<NamedTensor>& group : {parameters(), adapter()}) {
    for (const NamedTensor& named : group) {
      if (named.tensor.requires_grad()) result.push_back(named);
    }
  }
  return result;
}

void Transformer::set_trainable(bool on) {
  for (NamedTensor& named : parameters()) named.tensor.set_requires_grad(on);
}

Transformer Transformer::clone() const {
  Transformer copy = *this;
  copy.embedding = clone_weight(embedding);
  copy.final_norm = clone_weight(final_norm);
  copy.head = config.tied_head ? copy.embedding : clone_weight(head);
  for (Layer& layer : copy.layers) {
    layer.attention_norm = clone_weight(layer.attention_norm);
    layer.mlp_norm = clone_weight(layer.mlp_norm);
    for (const NamedLinear& named : layer_linears()) {
      Linear& linear = layer.*named.linear;
      linear.weight = clone_weight(linear.weight);
      linear.bias = clone_weight(linear.bias);
      if (linear.adapter)
        linear.adapter = {clone_weight(linear.adapter->a), clone_weight(linear.adapter->b), linear.adapter->scale};
    }
  }
  return copy;
}

int64_t Transformer::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& named : parameters()) count += named.tensor.numel();
  return count;
}

Transformer empty_transformer(const Config& config, at::TensorOptions options) {
  validate(config, "the configuration");
  const auto empty = [&](std::initializer_list<int64_t> shape) { return at::empty(shape, options); };
  const auto linear = [&](int64_t out, int64_t in, bool bias) {
    return Linear{empty({out, in}), bias ? empty({out}) : at::Tensor(), std::nullopt};
  };
  const int64_t width = config.hidden_size, query = config.heads * config.head_size,
                shared = config.key_value_heads * config.head_size, mlp = config.mlp_size;
  Transformer model;
  model.config = config;
  model.embedding = empty({config.vocabulary_size, width});
  for (int64_t i = 0; i < config.layers; ++i) {
    model.layers.push_back({empty({width}), empty({width}), linear(query, width, config.attention_bias),
                            linear(shared, width, config.attention_bias), linear(shared, width, config.attention_bias),
                            linear(width, query, config.attention_bias), linear(mlp, width, config.mlp_bias),
                            linear(mlp, width, config.mlp_bias), linear(width, mlp, config.mlp_bias)});
  }
  model.final_norm = empty({width});
  model.head = config.tied_head ? model.embedding : empty({config.vocabulary_size, width});
  return model;
}

Transformer random_transformer(const Config& config, uint64_t seed, double deviation, at::ScalarType dtype) {
  Transformer model = empty_transformer(config, dtype);
  for (NamedTensor& named : model.parameters()) {
    if (named.tensor.dim() == 1 && named.name.ends_with("norm.weight")) {
      named.tensor.fill_(1);
      continue;
    }
    RandomStream random(seed, named.name);
    at::Tensor values = at::empty(named.tensor.sizes(), at::kDouble);
    double* value = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < values.numel(); ++i) value[i] = deviation * random.normal();
    named.tensor.copy_(values);
  }
  return model;
}

const std::vector<NamedLinear>& layer_linears() {
  static const std::vector<NamedLinear> all = {
      {"self_attn.q_proj", &Layer::query},  {"self_attn.k_proj", &Layer::key}, {"self_attn.v_proj", &Layer::value},
      {"self_attn.o_proj", &Layer::output}, {"mlp.gate_proj", &Layer::gate},   {"mlp.up_proj", &Layer::up},
      {"mlp.down_proj", &Layer::down},
  };
  return all;
}

}  // namespace kullback
