#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include "kullback/lm/cache.h"
#include "kullback/lm/config.h"
#include "kullback/lm/linear.h"

namespace kullback {

struct Rows;  // kullback/divergence/head.h

/// Sequences laid end to end: no padding exists, so none can leak into a loss.
struct Ragged {
  at::Tensor ids;                ///< [N] int64, all sequences' (new) tokens one after another
  std::vector<int64_t> lengths;  ///< new tokens of each sequence, each > 0; sums to N
  /// Empty, or one a sequence: attention also sees what the cache holds, and the new tokens are appended to it.
  std::vector<KvCache*> caches;
};

/// Lays sequences end to end. Throws an Error for an empty one.
Ragged ragged(const std::vector<std::vector<int32_t>>& sequences);

struct NamedTensor {
  std::string name;  ///< Hugging Face's, or PEFT's for an adapter
  at::Tensor tensor;
};

struct Layer {
  at::Tensor attention_norm, mlp_norm;  // [D]
  Linear query;                         // [H d, D]
  Linear key, value;                    // [K d, D]
  Linear output;                        // [D, H d]
  Linear gate, up;                      // [F, D]
  Linear down;                          // [D, F]
};

/// A decoder-only transformer driven by its configuration. A value whose copies share weights; `clone` does not.
struct Transformer {
  Config config;
  at::Tensor embedding;  // [V, D]
  std::vector<Layer> layers;
  at::Tensor final_norm;  // [D]
  at::Tensor head;        // [V, D]; the embedding itself when tied

  /// Hidden states after the final norm. [N, D]
  at::Tensor hidden(const Ragged& batch, AdapterUse use = AdapterUse::on) const;

  /// Hidden states with the head, as the streaming head takes them: every row of the head takes part, padding of the
  /// vocabulary included, as in other programs' logits. hidden: [N, D]
  Rows head_rows(const at::Tensor& hidden) const;

  /// All the logits of a few rows, for decoding: [N, D] -> [N, V].
  at::Tensor logits(const at::Tensor& hidden) const;

  /// Every weight of the base model (a tied head once) under its Hugging Face name, in the model's order.
  std::vector<NamedTensor> parameters() const;
  /// The adapter's matrices under PEFT's names, or none.
  std::vector<NamedTensor> adapter() const;
  /// Those of both that require a gradient: what an optimiser takes.
  std::vector<NamedTensor> trainable() const;
  /// Makes every base weight require a gradient, or none.
  void set_trainable(bool on);

  /// The same model with weights of its own; nothing requires a gradient. With an adapter: a copy of it too.
  Transformer clone() const;
  at::ScalarType dtype() const { return embedding.scalar_type(); }
  /// Numbers in the base model.
  int64_t parameter_count() const;
};

/// Weights of the right shapes, not filled, of a type and on a device (the meta device: shapes alone). Throws an Error
/// when the configuration is not valid.
Transformer empty_transformer(const Config& config, at::TensorOptions options);

/// Normal weights of the given deviation and norms of one: tiny models for tests and exact worlds.
Transformer random_transformer(const Config& config, uint64_t seed, double deviation = 0.02,
                               at::ScalarType dtype = at::kFloat);

/// The linear layers by the names of their Hugging Face modules: `self_attn.q_proj` ... `mlp.down_proj`.
struct NamedLinear {
  const char* module;
  Linear Layer::*linear;
};
const std::vector<NamedLinear>& layer_linears();

}  // namespace kullback
