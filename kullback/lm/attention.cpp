#include "kullback/lm/attention.h"

#include <ATen/ATen.h>

namespace kullback {
namespace {

// [T, heads, d] as scaled_dot_product_attention wants it: [1, heads, T, d]. A view.
at::Tensor heads_first(const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

// Token t of the T new ones sees the S - T cached ones, itself and the new ones before it. [T, S]
at::Tensor causal_mask(int64_t tokens, int64_t seen, const at::Tensor& like) {
  return at::ones({tokens, seen}, like.options().dtype(at::kBool)).tril_(seen - tokens);
}

// query: [T, H, d]; key, value: [S, K, d], S >= T -> [T, H d]
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const int64_t tokens = query.size(0), seen = key.size(0);
  const bool grouped = query.size(1) != key.size(1);
  std::optional<at::Tensor> mask;
  if (tokens != seen && tokens > 1)
    mask = causal_mask(tokens, seen, query);  // `is_causal` would align the wrong corner
  const at::Tensor mixed =
      at::scaled_dot_product_attention(heads_first(query), heads_first(key), heads_first(value), mask, 0.0,
                                       tokens == seen && tokens > 1, std::nullopt, grouped);
  return mixed.squeeze(0).transpose(0, 1).reshape({tokens, -1});
}

}  // namespace

at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::vector<int64_t>& lengths, const std::vector<KvCache*>& caches, int64_t layer) {
  if (lengths.size() == 1 && caches.empty()) return attend(query, key, value);
  // split_with_sizes, not narrow: the backward pass of a narrow fills a tensor of the full size for each sequence.
  const std::vector<at::Tensor> queries = query.split_with_sizes(lengths), keys = key.split_with_sizes(lengths),
                                values = value.split_with_sizes(lengths);
  std::vector<at::Tensor> mixed(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (caches.empty()) {
      mixed[i] = attend(queries[i], keys[i], values[i]);
    } else {
      caches[i]->append(layer, keys[i], values[i]);
      mixed[i] = attend(queries[i], caches[i]->keys(layer), caches[i]->values(layer));
    }
  }
  return at::cat(mixed);
}

}  // namespace kullback
