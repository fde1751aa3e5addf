#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Causal attention of each sequence to itself, with gradients, by LibTorch's fused kernel; scores are q . k times `scale`.
/// Kept for the backward pass: the three inputs as they come, the result and a number a head and token. (Plain
/// scaled_dot_product_attention keeps keys and values repeated for each head of a group, and each sequence's result beside
/// the joined one: a quarter of what a layer of a small model keeps.)
/// query: [N, H, d]; key, value: [N, K, d], all sequences end to end -> [N, H d]
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale,
                            const std::vector<int64_t>& lengths);

}  // namespace kullback
