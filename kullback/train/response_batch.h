#pragma once

#include <span>
#include <vector>

#include "kullback/lm/transformer.h"
#include "kullback/train/data.h"

namespace kullback {

/// Sequences laid end to end, and which of their hidden states predict a token of a response. Only those rows ever reach
/// the head: prompts cost no logits.
struct ResponseBatch {
  Ragged tokens;
  at::Tensor rows;              ///< [M] int64: positions in the batch whose next token is counted
  at::Tensor labels;            ///< [M] int64: those next tokens
  std::vector<int64_t> counts;  ///< counted tokens of each sequence; sum to M
};
ResponseBatch response_batch(std::span<const Sequence* const> sequences);

/// [M] -> [B,T]: a number a counted token becomes a row a sequence, from its first counted token on; 0 beyond its end.
at::Tensor padded(const at::Tensor& values, std::span<const int64_t> counts);
/// [B,T] bool: true within each sequence's counted tokens.
at::Tensor padding_mask(std::span<const int64_t> counts);

/// Hidden states of the counted rows, after the final norm. [M,D]
at::Tensor response_hidden(const Transformer& model, const ResponseBatch& batch, AdapterUse use = AdapterUse::on);

/// The same, and the residual stream after block `layer` (from 1) at those rows.
struct ResponseStates {
  at::Tensor last, after_layer;  ///< [M,D] each
};
ResponseStates response_states(const Transformer& model, const ResponseBatch& batch, AdapterUse use, int64_t layer);

}  // namespace kullback
