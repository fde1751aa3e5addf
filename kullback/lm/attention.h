#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/cache.h"

namespace kullback {

/// Causal attention of each sequence to itself, and to its cache when `caches` is not empty, to which the new keys and
/// values are appended. Groups of H / K query heads share a key head (Ainslie et al. 2023, arXiv 2305.13245).
/// query: [N, H, d]; key, value: [N, K, d], all sequences end to end -> [N, H d]
at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::vector<int64_t>& lengths, const std::vector<KvCache*>& caches, int64_t layer);

}  // namespace kullback
