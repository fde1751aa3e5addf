#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include "kullback/lm/cache.h"
#include "kullback/lm/config.h"
#include "kullback/lm/layer.h"
#include "kullback/lm/weights.h"

namespace kullback {

struct Rows;  // kullback/divergence/head.h

/// Sequences laid end to end: no padding exists, so none can leak into a loss.
struct Ragged {
  at::Tensor ids;                ///< [N] int64, all sequences' (new) tokens one after another
  std::vector<int64_t> lengths;  ///< new tokens of each sequence, each > 0; sums to N
  /// Empty, or one a sequence: attention also sees what the cache holds, and the new tokens are appended to it.
  std::vector<KvCache*> caches;
  /// Empty: sequences begin where their caches end, or at 0. Else the position of each sequence's first new token.
  std::vector<int64_t> first_positions = {};
  /// The length of sequence that dynamic and longrope rotations are made for, 0: each sequence its own. (transformers
  /// takes the longest of a batch for all of it, so that a row depends on its neighbours.)
  int64_t context = 0;
};

/// Lays sequences end to end. Throws an Error for an empty one.
Ragged ragged(const std::vector<std::vector<int32_t>>& sequences);

struct NamedTensor {
  std::string name;  ///< Hugging Face's, or PEFT's for an adapter
  at::Tensor tensor;
};

/// A decoder-only transformer driven by its configuration. A value whose copies share weights; `clone` does not.
struct Transformer {
  Config config;
  at::Tensor embedding;  // [V, D], or kept short as the linear layers' weights are (weights.h)
  at::Tensor positions;  // [max_positions, D], or undefined
  std::vector<Layer> layers;
  Norm final_norm;
  at::Tensor head;  // the same; the embedding itself when tied
  /// A training pass keeps each layer's input alone and makes the rest anew in its backward pass: less memory, one more
  /// forward pass. Numbers stay the same to the last bit.
  bool recompute = false;

  /// Hidden states after the final norm. [N, D]
  /// `outputs`: receives what goes into the first layer and what comes out of each. [N, D] each
  at::Tensor hidden(const Ragged& batch, AdapterUse use = AdapterUse::on,
                    std::vector<at::Tensor>* outputs = nullptr) const;

  /// Hidden states with the head, as the streaming head takes them: every row of the head takes part, padding of the
  /// vocabulary included, as in other programs' logits. hidden: [N, D]
  Rows head_rows(const at::Tensor& hidden) const;

  /// All the logits of a few rows, for decoding: [N, D] -> [N, V].
  at::Tensor logits(const at::Tensor& hidden) const;

  /// Every weight of the base model (a tied head once) under its Hugging Face name, in the model's order. Where the
  /// family's files keep several in one tensor: its name and `[q_proj]` or the like.
  std::vector<NamedTensor> parameters() const;
  /// The adapter's matrices under PEFT's names, or none.
  std::vector<NamedTensor> adapter() const;
  /// Those of both that require a gradient: what an optimiser takes.
  std::vector<NamedTensor> trainable() const;
  /// Makes every base weight require a gradient, or none.
  void set_trainable(bool on);

  /// The same model with weights of its own; nothing requires a gradient. With an adapter: a copy of it too.
  Transformer clone() const;
  /// The same in another type.
  Transformer clone(at::ScalarType type) const;
  /// The type that the model computes in: that of its norms.
  at::ScalarType dtype() const { return final_norm.weight.scalar_type(); }
  /// Numbers in the base model.
  int64_t parameter_count() const;
};

/// Weights of the right shapes, not filled, of a type and on a device (the meta device: shapes alone). Throws an Error
/// when the configuration is not valid.
Transformer empty_transformer(const Config& config, at::TensorOptions options);

/// Keeps the matrices of a float32 model as the type says; norms and biases, and adapters, stay float32. For generation and
/// scoring: such a model takes no gradients. Other copies of the model keep their weights.
void keep_weights(Transformer& model, WeightType type);

/// Calls `change` with every matrix of the base model, a tied head once: what is assigned takes its place.
void for_each_matrix(Transformer& model, const std::function<void(at::Tensor&)>& change);

/// Normal weights of the given deviation and norms of one: tiny models for tests and exact worlds.
Transformer random_transformer(const Config& config, uint64_t seed, double deviation = 0.02,
                               at::ScalarType dtype = at::kFloat);

}  // namespace kullback
