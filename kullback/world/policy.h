#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"
#include "kullback/lm/transformer.h"
#include "kullback/world/world.h"

namespace kullback {

/// What is trained in a world: rows for the streaming head, one a prompt and prefix, and the numbers they depend on.
struct Policy {
  std::function<Rows()> rows;           ///< C * P rows, prompt by prompt; differentiable in the parameters
  std::vector<NamedTensor> parameters;  ///< each requires a gradient

  /// The same as log-probabilities [C,P,V].
  at::Tensor log_rows(const SequenceSpace& space) const;
};

/// A row of logits a prefix, beginning at `rows` [C,P,V].
Policy tabular_policy(const at::Tensor& rows);

/// A transformer of the world's vocabulary and, as further tokens that no response holds, its prompts. float64, two layers.
Transformer world_transformer(const SequenceSpace& space, int64_t prompts, double deviation, uint64_t seed);

/// That transformer as a policy; its weights are trained in place. It reads a prompt's token, then the response.
Policy transformer_policy(Transformer& transformer, const SequenceSpace& space, int64_t prompts);

/// The world's reference as a policy that may move: tabular, or a copy of its transformer.
Policy fresh_policy(const World& world);

}  // namespace kullback
