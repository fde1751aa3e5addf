#include "kullback/lm/naive_test.h"

#include <cmath>
#include <complex>

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

Vector normed(const Vector& x, const at::Tensor& weight, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * entry(weight, static_cast<int64_t>(i));
  }
  return y;
}

void turn(Vector& heads, int64_t head_size, double theta, size_t position) {
  const auto size = static_cast<size_t>(head_size);
  for (size_t start = 0; start < heads.size(); start += size) {
    for (size_t j = 0; j < size / 2; ++j) {
      double &real = heads[start + j], &imaginary = heads[start + j + size / 2];
      const double angle =
          static_cast<double>(position) * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(size));
      const std::complex<double> turned = std::complex(real, imaginary) * std::polar(1.0, angle);
      real = turned.real();
      imaginary = turned.imag();
    }
  }
}

Vector attend(const Vector& query, const std::vector<Vector>& keys, const std::vector<Vector>& values,
              const Config& config) {
  const auto size = static_cast<size_t>(config.head_size),
             group = static_cast<size_t>(config.heads / config.key_value_heads);
  Vector mixed(query.size());
  for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
    const size_t shared = head / group * size;
    Vector weight(keys.size());
    double total = 0;
    for (size_t s = 0; s < keys.size(); ++s) {
      double dot = 0;
      for (size_t j = 0; j < size; ++j) dot += query[head * size + j] * keys[s][shared + j];
      total += weight[s] = std::exp(dot / std::sqrt(static_cast<double>(size)));
    }
    for (size_t s = 0; s < keys.size(); ++s) {
      for (size_t j = 0; j < size; ++j) mixed[head * size + j] += weight[s] / total * values[s][shared + j];
    }
  }
  return mixed;
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
  for (NamedTensor& named : model.parameters()) {
    if (!named.name.ends_with("norm.weight")) continue;
    RandomStream random(seed, "norm", static_cast<uint64_t>(named.name.size()));
    for (int64_t i = 0; i < named.tensor.numel(); ++i) named.tensor[i] = 0.5 + random.uniform();
  }
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
  for (const int32_t id : ids) {
    Vector state(width);
    for (size_t i = 0; i < width; ++i)
      state[i] = entry(model.embedding, id * config.hidden_size + static_cast<int64_t>(i));
    states.push_back(state);
  }
  for (const Layer& layer : model.layers) {
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < ids.size(); ++t) {
      const Vector x = normed(states[t], layer.attention_norm.weight, config.norm_epsilon);
      keys.push_back(apply(layer.key, x, use));
      values.push_back(apply(layer.value, x, use));
      turn(keys.back(), config.head_size, config.rope.theta, t);
      Vector query = apply(layer.query, x, use);
      turn(query, config.head_size, config.rope.theta, t);
      add(states[t], apply(layer.output, attend(query, keys, values, config), use));
    }
    for (Vector& state : states) {
      const Vector x = normed(state, layer.mlp_norm.weight, config.norm_epsilon);
      Vector gate = apply(layer.gate, x, use);
      const Vector up = apply(layer.up, x, use);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(state, apply(layer.down, gate, use));
    }
  }
  std::vector<std::vector<double>> logits;
  for (const Vector& state : states)
    logits.push_back(times(model.head, normed(state, model.final_norm.weight, config.norm_epsilon)));
  return logits;
}

}  // namespace kullback::test
