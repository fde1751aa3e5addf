#pragma once

#include <ATen/ATen.h>

#include "kullback/lm/transformer.h"

namespace kullback::bench {

/// The shape of SmolLM2-135M, or of a model with so many of its layers.
inline Config smollm2_shape(int64_t layers = 30) {
  Config config;
  config.vocabulary_size = 49152;
  config.hidden_size = 576;
  config.layers = layers;
  config.heads = 9;
  config.key_value_heads = 3;
  config.head_size = 64;
  config.mlp_size = 1536;
  config.rope.theta = 100000;
  config.tied_head = true;
  return config;
}

/// That with random weights: nothing to download.
inline Transformer random_model(int64_t layers = 30) {
  at::manual_seed(0);
  Transformer model = empty_transformer(smollm2_shape(layers), at::kFloat);
  for (NamedTensor& named : model.parameters()) named.tensor.normal_(0, 0.04);
  return model;
}

}  // namespace kullback::bench
