#include "kullback/lm/lora.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/base/suggest.h"

namespace kullback {
namespace {

bool is_targeted(const NamedLinear& named, const std::vector<std::string>& targets) {
  const std::string name = linear_name(named.linear);
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& t) { return t == "all-linear" || t == name; });
}

void check(const LoraOptions& options) {
  if (options.rank < 1) fail("the rank of an adapter is {}, which must be at least 1", options.rank);
  if (!std::isfinite(options.alpha)) fail("the alpha of an adapter is {}, which must be finite", options.alpha);
  if (options.targets.empty()) fail("an adapter needs at least one target");
  std::vector<std::string> known = {"all-linear"};
  for (const NamedLinear& named : layer_linears()) known.push_back(linear_name(named.linear));
  for (const std::string& target : options.targets) {
    if (std::find(known.begin(), known.end(), target) == known.end()) {
      fail("no linear layer is called '{}'{}; there are {}", target, suggestion(target, known), listing(known));
    }
  }
}

at::Tensor uniform(at::IntArrayRef shape, double bound, RandomStream& random, at::TensorOptions options) {
  at::Tensor values = at::empty(shape, at::kDouble);
  double* value = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) value[i] = bound * (2 * random.uniform() - 1);
  return values.to(options);
}

LowRank new_adapter(const at::Tensor& weight, const LoraOptions& options, RandomStream random) {
  const int64_t out = weight.size(0), in = weight.size(1);
  LowRank adapter;
  adapter.a = uniform({options.rank, in}, 1 / std::sqrt(static_cast<double>(in)), random, weight.options());
  adapter.b = at::zeros({out, options.rank}, weight.options());
  adapter.scale = options.alpha / static_cast<double>(options.rank);
  adapter.a.set_requires_grad(true);
  adapter.b.set_requires_grad(true);
  return adapter;
}

}  // namespace

void add_lora(Transformer& model, const LoraOptions& options, uint64_t seed) {
  check(options);
  model.set_trainable(false);
  remove_lora(model);
  uint64_t index = 0;
  for (Layer& layer : model.layers) {
    for (const NamedLinear& named : layer_linears()) {
      Linear& linear = layer.*named.linear;
      if (linear.weight.defined() && is_targeted(named, options.targets))
        linear.adapter = new_adapter(linear.weight, options, RandomStream(seed, "lora", index));
      ++index;  // whether targeted or not: a layer's start does not depend on which others have adapters
    }
  }
}

void merge_lora(Transformer& model) {
  const at::NoGradGuard no_grad;
  for (Layer& layer : model.layers) {
    for (const NamedLinear& named : layer_linears()) {
      Linear& linear = layer.*named.linear;
      if (!linear.adapter) continue;
      const auto& [a, b, scale] = *linear.adapter;
      // A new tensor, not in place: other copies of the model share the old one.
      linear.weight = at::addmm(linear.weight, b, a, 1, scale).set_requires_grad(linear.weight.requires_grad());
      linear.adapter.reset();
    }
  }
}

void remove_lora(Transformer& model) {
  for (Layer& layer : model.layers) {
    for (const NamedLinear& named : layer_linears()) (layer.*named.linear).adapter.reset();
  }
}

LoraOptions lora_options(const Transformer& model) {
  LoraOptions options;
  options.targets.clear();
  for (const NamedLinear& named : layer_linears()) {
    for (const Layer& layer : model.layers) {
      const Linear& linear = layer.*named.linear;
      if (!linear.adapter) continue;
      options.rank = linear.adapter->a.size(0);
      options.alpha = linear.adapter->scale * static_cast<double>(options.rank);
      options.targets.push_back(linear_name(named.linear));
      break;
    }
  }
  if (options.targets.empty()) fail("the model has no adapter");
  return options;
}

}  // namespace kullback
