#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/cache.h"

namespace kullback {

/// How a layer's scores are made.
struct AttentionRule {
  double scale = 1;    ///< scores are q . k times it
  double softcap = 0;  ///< c: then c tanh(s / c); 0: none
  int64_t window = 0;  ///< a token sees so many tokens, itself included; 0: all before it
};

/// Causal attention of each sequence to itself, and to its cache when `caches` is not empty, to which the new keys and
/// values are appended. Groups of H / K query heads share a key head (Ainslie et al. 2023, arXiv 2305.13245).
/// query: [N, H, d]; key, value: [N, K, d], all sequences end to end -> [N, H d]
at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionRule& rule, const std::vector<int64_t>& lengths,
                            const std::vector<KvCache*>& caches, int64_t layer);

}  // namespace kullback
