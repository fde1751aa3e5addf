#include "kullback/lm/naive_test.h"

#include <cmath>
#include <complex>
#include <numbers>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/base/random.h"
#include "kullback/lm/lora.h"

namespace kullback::test {
namespace {

using Vector = std::vector<double>;

double entry(const at::Tensor& tensor, int64_t i) { return tensor.const_data_ptr<double>()[i]; }

Vector times(const at::Tensor& matrix, const Vector& x) {
  Vector y(static_cast<size_t>(matrix.size(0)));
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += entry(matrix, static_cast<int64_t>(i * x.size() + j)) * x[j];
  }
  return y;
}

Vector apply(const Linear& linear, const Vector& x, AdapterUse use) {
  Vector y = times(linear.weight, x);
  for (size_t i = 0; linear.bias.defined() && i < y.size(); ++i) y[i] += entry(linear.bias, static_cast<int64_t>(i));
  if (linear.adapter && use == AdapterUse::on) {
    const Vector change = times(linear.adapter->b, times(linear.adapter->a, x));
    for (size_t i = 0; i < y.size(); ++i) y[i] += linear.adapter->scale * change[i];
  }
  return y;
}

Vector normed(const Vector& x, const Norm& norm, const Config& config) {
  if (!norm.weight.defined()) return x;
  const auto size = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  if (config.norm == NormKind::layer) {
    for (const double value : x) mean += value / size;
  }
  for (const double value : x) squares += (value - mean) * (value - mean);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double weight = entry(norm.weight, at) + (config.norm == NormKind::zero_centred_rms ? 1 : 0);
    y[i] = (x[i] - mean) / std::sqrt(squares / size + config.norm_epsilon) * weight;
    if (norm.bias.defined()) y[i] += entry(norm.bias, at);
  }
  return y;
}

Vector normed_heads(const Vector& x, const Norm& norm, const Config& config) {
  if (config.query_key_norm == QueryKeyNorm::whole) return normed(x, norm, config);
  Vector y;
  for (size_t start = 0; start < x.size(); start += static_cast<size_t>(config.head_size)) {
    const auto head = x.begin() + static_cast<std::ptrdiff_t>(start);
    const Vector one = normed(Vector(head, head + config.head_size), norm, config);
    y.insert(y.end(), one.begin(), one.end());
  }
  return y;
}

void turn(Vector& heads, const Rope& rope, int64_t head_size, size_t position) {
  const auto size = static_cast<size_t>(rope.size == 0 ? head_size : rope.size);
  for (size_t start = 0; start < heads.size(); start += static_cast<size_t>(head_size)) {
    for (size_t j = 0; j < size / 2; ++j) {
      double &real = heads[start + j], &imaginary = heads[start + j + size / 2];
      const double angle = static_cast<double>(position) *
                           std::pow(rope.theta, -2.0 * static_cast<double>(j) / static_cast<double>(size));
      const std::complex<double> turned = std::complex(real, imaginary) * std::polar(1.0, angle);
      real = turned.real();
      imaginary = turned.imag();
    }
  }
}

double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::relu: return std::max(x, 0.0);
  }
  return x;
}

Vector attend(const Vector& query, const std::vector<Vector>& keys, const std::vector<Vector>& values,
              const Config& config, bool slides) {
  const auto size = static_cast<size_t>(config.head_size),
             group = static_cast<size_t>(config.heads / config.key_value_heads);
  const double scale = config.query_scale > 0 ? config.query_scale : static_cast<double>(size);
  const size_t window = slides ? static_cast<size_t>(config.window) : keys.size(),
               first = keys.size() > window ? keys.size() - window : 0;
  Vector mixed(query.size());
  for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
    const size_t shared = head / group * size;
    Vector weight(keys.size());
    double total = 0;
    for (size_t s = first; s < keys.size(); ++s) {
      double dot = 0;
      for (size_t j = 0; j < size; ++j) dot += query[head * size + j] * keys[s][shared + j];
      total += weight[s] = std::exp(capped(dot / std::sqrt(scale), config.attention_softcap));
    }
    for (size_t s = first; s < keys.size(); ++s) {
      for (size_t j = 0; j < size; ++j) mixed[head * size + j] += weight[s] / total * values[s][shared + j];
    }
  }
  return mixed;
}

Vector feed_forward(const Layer& layer, const Vector& x, const Config& config, AdapterUse use) {
  Vector up = apply(layer.up, x, use);
  if (!config.gated) {
    for (double& value : up) value = activated(value, config.activation);
    return apply(layer.down, up, use);
  }
  const Vector gate = apply(layer.gate, x, use);
  for (size_t i = 0; i < up.size(); ++i) up[i] *= activated(gate[i], config.activation);
  return apply(layer.down, up, use);
}

void add(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

Config tiny_config() {
  Config config;
  config.vocabulary_size = 37;
  config.hidden_size = 10;
  config.layers = 2;
  config.heads = 6;
  config.key_value_heads = 2;
  config.head_size = 4;
  config.mlp_size = 14;
  config.max_positions = 64;
  config.norm_epsilon = 1e-5;
  config.rope.theta = 100;
  return config;
}

Transformer tiny_transformer(const Config& config, uint64_t seed) {
  Transformer model = random_transformer(config, seed, 0.3, at::kDouble);
  uint64_t index = 0;
  const auto stir = [&](Norm& norm) {
    RandomStream random(seed, "norm", index++);
    for (const at::Tensor& tensor : {norm.weight, norm.bias}) {
      for (int64_t i = 0; tensor.defined() && i < tensor.numel(); ++i) tensor[i].add_(random.uniform() - 0.5);
    }
  };
  for (Layer& layer : model.layers) {
    for (Norm Layer::*norm : layer_norms()) stir(layer.*norm);
  }
  stir(model.final_norm);
  return model;
}

void add_random_lora(Transformer& model, int64_t rank, const std::vector<std::string>& targets) {
  add_lora(model, {.rank = rank, .alpha = 1.5 * static_cast<double>(rank), .targets = targets}, 5);
  const at::NoGradGuard no_grad;
  uint64_t index = 0;
  for (NamedTensor& named : model.adapter()) {
    RandomStream random(6, "adapter", index++);
    for (int64_t i = 0; i < named.tensor.numel(); ++i) named.tensor.view({-1})[i] = 0.3 * random.normal();
  }
}

std::vector<int32_t> random_ids(int64_t vocabulary, size_t length, uint64_t seed) {
  RandomStream random(seed, "ids");
  std::vector<int32_t> ids(length);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary)));
  return ids;
}

std::vector<std::vector<double>> naive_logits(const Transformer& model, const std::vector<int32_t>& ids,
                                              AdapterUse use) {
  const Config& config = model.config;
  const auto width = static_cast<size_t>(config.hidden_size);
  std::vector<Vector> states;
  for (size_t t = 0; t < ids.size(); ++t) {
    Vector state(width);
    for (size_t i = 0; i < width; ++i) {
      const auto at = static_cast<int64_t>(i);
      state[i] = entry(model.embedding, ids[t] * config.hidden_size + at);
      if (config.scaled_embedding) state[i] *= std::sqrt(static_cast<double>(width));
      if (config.learned_positions)
        state[i] += entry(model.positions, static_cast<int64_t>(t) * config.hidden_size + at);
    }
    states.push_back(state);
  }
  for (int64_t index = 0; index < config.layers; ++index) {
    const Layer& layer = model.layers[static_cast<size_t>(index)];
    const Rope& rope = config.slides(index) && config.local_rope ? *config.local_rope : config.rope;
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < ids.size(); ++t) {
      const Vector before = states[t], x = normed(before, layer.attention_norm, config);
      keys.push_back(normed_heads(apply(layer.key, x, use), layer.key_norm, config));
      values.push_back(apply(layer.value, x, use));
      Vector query = normed_heads(apply(layer.query, x, use), layer.query_norm, config);
      if (config.rotates(index)) {
        turn(keys.back(), rope, config.head_size, t);
        turn(query, rope, config.head_size, t);
      }
      const Vector mixed = apply(layer.output, attend(query, keys, values, config, config.slides(index)), use);
      add(states[t], normed(mixed, layer.attention_post_norm, config));
      const Vector read = normed(config.parallel_residual ? before : states[t], layer.mlp_norm, config);
      add(states[t], normed(feed_forward(layer, read, config, use), layer.mlp_post_norm, config));
    }
  }
  std::vector<std::vector<double>> logits;
  for (const Vector& state : states) {
    logits.push_back(times(model.head, normed(state, model.final_norm, config)));
    for (double& logit : logits.back()) logit = capped(logit, config.head_softcap);
  }
  return logits;
}

}  // namespace kullback::test
