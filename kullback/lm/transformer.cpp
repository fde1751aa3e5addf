#include "kullback/lm/transformer.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/attention.h"
#include "kullback/lm/elementwise.h"
#include "kullback/lm/layout.h"
#include "kullback/lm/recompute.h"
#include "kullback/lm/rotary.h"
#include "kullback/lm/step_product.h"

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
  if (!batch.first_positions.empty() && batch.first_positions.size() != batch.lengths.size()) {
    throw std::logic_error("Ragged: there must be one first position a sequence, or none");
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

std::vector<PositionRun> position_runs(const Ragged& batch) {
  std::vector<PositionRun> runs;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const int64_t first = !batch.first_positions.empty() ? batch.first_positions[i]
                          : batch.caches.empty()         ? 0
                                                         : batch.caches[i]->length();
    runs.push_back({first, batch.lengths[i], batch.context > 0 ? batch.context : first + batch.lengths[i]});
  }
  return runs;
}

at::Tensor normed(const at::Tensor& x, const Norm& norm, const Config& config) {
  switch (config.norm) {
    case NormKind::rms: return rms_norm(x, norm.weight, config.norm_epsilon);
    case NormKind::zero_centred_rms: return rms_norm(x, norm.weight + 1, config.norm_epsilon);
    case NormKind::layer: return layer_norm(x, norm.weight, norm.bias, config.norm_epsilon);
  }
  throw std::logic_error("a norm without a rule");
}

at::Tensor normed_if_any(const at::Tensor& x, const Norm& norm, const Config& config) {
  return norm.weight.defined() ? normed(x, norm, config) : x;
}

// Queries or keys, of each head or of all together. [N, heads d] -> [N, heads, d]
at::Tensor normed_heads(const at::Tensor& x, const Norm& norm, const Config& config) {
  const int64_t width = config.query_key_norm == QueryKeyNorm::each_head ? config.head_size : x.size(-1);
  return normed_if_any(x.reshape({-1, width}), norm, config).view({x.size(0), -1, config.head_size});
}

// What a forward pass makes once for all its layers.
struct Pass {
  Config config;
  Ragged batch;
  AdapterUse use;
  Rotation turns, local_turns;
};

Pass begin_pass(const Config& config, const Ragged& batch, AdapterUse use, at::ScalarType dtype) {
  Pass pass{config, batch, use, {}, {}};
  if (config.learned_positions) return pass;
  const std::vector<PositionRun> runs = position_runs(batch);
  const auto turns = [&](const Rope& rope) {
    return rotation(rope, rope.size == 0 ? config.head_size : rope.size, runs, dtype);
  };
  pass.turns = turns(config.rope);
  if (config.local_rope) pass.local_turns = turns(*config.local_rope);
  return pass;
}

// What `layers` make of the normed input, where there is a norm.
std::vector<at::Tensor> of_normed(const at::Tensor& x, const Norm& norm, const Pass& pass,
                                  const std::vector<std::reference_wrapper<const Linear>>& layers) {
  const Config& config = pass.config;
  if (norm.weight.defined() && config.norm != NormKind::layer)
    return rms_norm_linears(x, config.norm == NormKind::rms ? norm.weight : norm.weight + 1, config.norm_epsilon,
                            layers, pass.use);
  const at::Tensor read = normed_if_any(x, norm, config);
  std::vector<at::Tensor> images;
  for (const Linear& layer : layers) images.push_back(layer(read, pass.use));
  return images;
}

at::Tensor self_attention(const Layer& layer, const at::Tensor& x, const Pass& pass, int64_t index) {
  const Config& config = pass.config;
  const bool local = config.slides(index);
  const std::vector<at::Tensor> read = of_normed(x, layer.attention_norm, pass, {layer.query, layer.key, layer.value});
  at::Tensor query = normed_heads(read[0], layer.query_norm, config);
  at::Tensor key = normed_heads(read[1], layer.key_norm, config);
  const at::Tensor value = read[2].view({-1, config.key_value_heads, config.head_size});
  if (config.rotates(index)) {
    const Rotation& turns = local && config.local_rope ? pass.local_turns : pass.turns;
    query = rotate(query, turns);
    key = rotate(key, turns);
  }
  const double scale = config.query_scale > 0 ? config.query_scale : static_cast<double>(config.head_size);
  const AttentionRule rule{1 / std::sqrt(scale), config.attention_softcap, local ? config.window : 0};
  return layer.output(ragged_attention(query, key, value, rule, pass.batch.lengths, pass.batch.caches, index),
                      pass.use);
}

at::Tensor feed_forward(const Layer& layer, const at::Tensor& x, const Pass& pass) {
  const Config& config = pass.config;
  if (!config.gated) {
    const std::vector<at::Tensor> read = of_normed(x, layer.mlp_norm, pass, {layer.up});
    return layer.down(activate(read[0], config.activation), pass.use);
  }
  const std::vector<at::Tensor> read = of_normed(x, layer.mlp_norm, pass, {layer.gate, layer.up});
  if (config.activation == Activation::silu) return swiglu_linear(read[0], read[1], layer.down, pass.use);
  return layer.down(activate(read[0], config.activation) * read[1], pass.use);
}

at::Tensor through_layer(const Layer& layer, const at::Tensor& x, const Pass& pass, int64_t index) {
  const Config& config = pass.config;
  at::Tensor mixed = self_attention(layer, x, pass, index);
  mixed = normed_if_any(mixed, layer.attention_post_norm, config).add_(x);
  const at::Tensor& read = config.parallel_residual ? x : mixed;
  const at::Tensor made = feed_forward(layer, read, pass);
  return normed_if_any(made, layer.mlp_post_norm, config).add_(mixed);
}

// [N, D]
at::Tensor embedded(const Transformer& model, const Ragged& batch) {
  at::Tensor x = is_short(model.embedding, model.dtype()) ? rows_in_full(model.embedding, batch.ids)
                                                          : at::embedding(model.embedding, batch.ids);
  if (model.config.scaled_embedding) x = x * std::sqrt(static_cast<double>(model.config.hidden_size));
  if (!model.config.learned_positions) return x;
  std::vector<int64_t> places;
  for (const PositionRun& run : position_runs(batch)) {
    if (run.first + run.count > model.config.max_positions) {
      fail("a sequence of {} tokens is longer than the {} positions that the model has learnt", run.first + run.count,
           model.config.max_positions);
    }
    for (int64_t t = 0; t < run.count; ++t) places.push_back(run.first + t);
  }
  return x + at::embedding(model.positions, at::tensor(places, at::kLong));
}

// A copy of every tensor of a model, made by `copy`.
Transformer copied(const Transformer& model, const std::function<at::Tensor(const at::Tensor&)>& copy) {
  const auto weight = [&](const at::Tensor& tensor) { return tensor.defined() ? copy(tensor.detach()) : tensor; };
  const auto norm = [&](const Norm& one) { return Norm{weight(one.weight), weight(one.bias)}; };
  Transformer other = model;
  other.embedding = weight(model.embedding);
  other.positions = weight(model.positions);
  other.final_norm = norm(model.final_norm);
  other.head = model.config.tied_head ? other.embedding : weight(model.head);
  for (Layer& layer : other.layers) {
    for (Norm Layer::*member : layer_norms()) layer.*member = norm(layer.*member);
    for (const NamedLinear& named : layer_linears()) {
      Linear& linear = layer.*named.linear;
      linear.weight = weight(linear.weight);
      linear.bias = weight(linear.bias);
      if (linear.adapter)
        linear.adapter = {weight(linear.adapter->a), weight(linear.adapter->b), linear.adapter->scale};
    }
  }
  return other;
}

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

at::Tensor Transformer::hidden(const Ragged& batch, AdapterUse use, std::vector<at::Tensor>* outputs) const {
  check(batch, config);
  const Pass pass = begin_pass(config, batch, use, dtype());
  at::Tensor x = embedded(*this, batch);
  if (outputs != nullptr) outputs->push_back(x);
  const bool keeps_all = !recompute || !batch.caches.empty();
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    x = keeps_all ? through_layer(layers[i], x, pass, index)
                  : recomputed([layer = layers[i], pass,
                                index](const at::Tensor& input) { return through_layer(layer, input, pass, index); },
                               x);
    if (outputs != nullptr) outputs->push_back(x);
  }
  return normed(x, final_norm, config);
}

Rows Transformer::head_rows(const at::Tensor& hidden) const {
  Rows rows;
  rows.hidden = hidden;
  rows.weight = is_short(head, hidden.scalar_type()) ? in_full(head) : head;
  rows.softcap = config.head_softcap;
  return rows;
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  const at::Tensor logits = weight_product(hidden, head);
  return config.head_softcap > 0 ? at::tanh(logits / config.head_softcap) * config.head_softcap : logits;
}

std::vector<NamedTensor> Transformer::parameters() const {
  std::vector<NamedTensor> result;
  for (const StoredTensor& stored : stored_tensors(*this, hugging_face_layout(config.model_type))) {
    for (size_t i = 0; i < stored.parts.size(); ++i) result.push_back({stored.part_names[i], stored.parts[i]});
  }
  return result;
}

std::vector<NamedTensor> Transformer::adapter() const {
  const Layout& layout = hugging_face_layout(config.model_type);
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const LayoutEntry& entry : layout.entries) {
      for (Linear Layer::*member : entry.linears) {
        const Linear& linear = layers[i].*member;
        if (!linear.adapter) continue;
        const std::string part = entry.linears.size() == 1 ? "" : fmt::format("[{}]", linear_name(member));
        const std::string module = fmt::format("base_model.model.{}{}.{}", layout.layer, i, entry.module);
        result.push_back({module + ".lora_A.weight" + part, linear.adapter->a});
        result.push_back({module + ".lora_B.weight" + part, linear.adapter->b});
      }
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
  return copied(*this, [](const at::Tensor& tensor) { return tensor.clone(); });
}

Transformer Transformer::clone(at::ScalarType type) const {
  return copied(*this, [&](const at::Tensor& tensor) {
    const at::Tensor full = tensor.scalar_type() == at::kByte ? in_full(tensor) : tensor;
    return full.to(type, /*non_blocking=*/false, /*copy=*/true);
  });
}

void for_each_matrix(Transformer& model, const std::function<void(at::Tensor&)>& change) {
  change(model.embedding);
  for (Layer& layer : model.layers) {
    for (const NamedLinear& named : layer_linears()) {
      if ((layer.*named.linear).weight.defined()) change((layer.*named.linear).weight);
    }
  }
  if (model.config.tied_head) {
    model.head = model.embedding;
  } else {
    change(model.head);
  }
}

void keep_weights(Transformer& model, WeightType type) {
  const at::NoGradGuard no_grad;
  for_each_matrix(model, [&](at::Tensor& matrix) { matrix = kept_as(matrix.detach(), type); });
}

int64_t Transformer::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& named : parameters()) {
    count += named.tensor.dim() == 2 ? named.tensor.size(0) * row_length(named.tensor) : named.tensor.numel();
  }
  return count;
}

Transformer empty_transformer(const Config& config, at::TensorOptions options) {
  validate(config, "the configuration");
  const auto empty = [&](std::initializer_list<int64_t> shape) { return at::empty(shape, options); };
  const auto linear = [&](int64_t out, int64_t in, bool bias) {
    return Linear{empty({out, in}), bias ? empty({out}) : at::Tensor(), std::nullopt};
  };
  const auto norm = [&](bool present, int64_t width) {
    const bool bias = present && config.norm == NormKind::layer;
    return Norm{present ? empty({width}) : at::Tensor(), bias ? empty({width}) : at::Tensor()};
  };
  const int64_t width = config.hidden_size, query = config.heads * config.head_size,
                shared = config.key_value_heads * config.head_size, mlp = config.mlp_size;
  const bool read_bias = config.attention_bias || config.query_key_value_bias;
  const bool by_head = config.query_key_norm == QueryKeyNorm::each_head,
             head_norms = config.query_key_norm != QueryKeyNorm::none;
  Transformer model;
  model.config = config;
  model.embedding = empty({config.vocabulary_size, width});
  if (config.learned_positions) model.positions = empty({config.max_positions, width});
  for (int64_t i = 0; i < config.layers; ++i) {
    Layer& layer = model.layers.emplace_back();
    layer.attention_norm = norm(config.norm_before, width);
    layer.mlp_norm = norm(config.norm_before, width);
    layer.attention_post_norm = norm(config.norm_after, width);
    layer.mlp_post_norm = norm(config.norm_after, width);
    layer.query_norm = norm(head_norms, by_head ? config.head_size : query);
    layer.key_norm = norm(head_norms, by_head ? config.head_size : shared);
    layer.query = linear(query, width, read_bias);
    layer.key = linear(shared, width, read_bias);
    layer.value = linear(shared, width, read_bias);
    layer.output = linear(width, query, config.attention_bias);
    if (config.gated) layer.gate = linear(mlp, width, config.mlp_bias);
    layer.up = linear(mlp, width, config.mlp_bias);
    layer.down = linear(width, mlp, config.mlp_bias);
  }
  model.final_norm = norm(true, width);
  model.head = config.tied_head ? model.embedding : empty({config.vocabulary_size, width});
  return model;
}

Transformer random_transformer(const Config& config, uint64_t seed, double deviation, at::ScalarType dtype) {
  Transformer model = empty_transformer(config, dtype);
  for (NamedTensor& named : model.parameters()) {
    RandomStream random(seed, named.name);
    at::Tensor values = at::empty(named.tensor.sizes(), at::kDouble);
    double* value = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < values.numel(); ++i) value[i] = deviation * random.normal();
    named.tensor.copy_(values);
  }
  const auto reset = [&](Norm& norm) {
    if (norm.weight.defined()) norm.weight.fill_(config.norm == NormKind::zero_centred_rms ? 0 : 1);
    if (norm.bias.defined()) norm.bias.fill_(0);
  };
  reset(model.final_norm);
  for (Layer& layer : model.layers) {
    for (Norm Layer::*norm : layer_norms()) reset(layer.*norm);
  }
  return model;
}

}  // namespace kullback
