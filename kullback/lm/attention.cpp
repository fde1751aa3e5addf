#include "kullback/lm/attention.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kullback/lm/step_kernels.h"

#include "kullback/lm/causal_attention.h"

namespace kullback {
namespace {

// [T, heads, d] as scaled_dot_product_attention wants it: [1, heads, T, d]. A view.
at::Tensor heads_first(const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

// Token t of the T new ones sees the S - T before them, itself and the new ones before it, but none further back than
// the window. [T, S]
at::Tensor visible(int64_t tokens, int64_t seen, int64_t window, const at::Tensor& like) {
  at::Tensor mask = at::ones({tokens, seen}, like.options().dtype(at::kBool)).tril_(seen - tokens);
  return window > 0 ? mask.triu_(seen - tokens - window + 1) : mask;
}

// Scores held whole, where the fused kernel has no soft-cap. [1, heads, T, d] and [1, K, S, d] -> [1, heads, T, d]
at::Tensor capped_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::optional<at::Tensor>& mask, const AttentionRule& rule) {
  const int64_t group = query.size(1) / key.size(1);
  const at::Tensor keys = group > 1 ? key.repeat_interleave(group, 1) : key,
                   values = group > 1 ? value.repeat_interleave(group, 1) : value;
  at::Tensor scores = at::matmul(query, keys.transpose(-2, -1)) * rule.scale;  // [1, heads, T, S]
  scores = at::tanh(scores / rule.softcap) * rule.softcap;
  if (mask) scores = scores.masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), values);
}

// query: [T, H, d]; key, value: [S, K, d], S >= T -> [T, H d]
at::Tensor attend(const at::Tensor& query, at::Tensor key, at::Tensor value, const AttentionRule& rule) {
  const int64_t tokens = query.size(0);
  int64_t seen = key.size(0);
  const bool windowed = rule.window > 0 && seen > rule.window;
  if (windowed && tokens + rule.window - 1 < seen) {  // what no new token sees any more
    const int64_t kept = tokens + rule.window - 1;
    key = key.narrow(0, seen - kept, kept);
    value = value.narrow(0, seen - kept, kept);
    seen = kept;
  }
  const bool grouped = query.size(1) != key.size(1);
  const bool square = tokens == seen && tokens > 1 && !windowed && rule.softcap == 0;
  std::optional<at::Tensor> mask;
  if (tokens > 1 && !square)
    mask = visible(tokens, seen, windowed ? rule.window : 0, query);  // `is_causal` would align the wrong corner
  const at::Tensor q = heads_first(query), k = heads_first(key), v = heads_first(value);
  const at::Tensor mixed = rule.softcap > 0
                               ? capped_attention(q, k, v, mask, rule)
                               : at::scaled_dot_product_attention(q, k, v, mask, 0.0, square, rule.scale, grouped);
  return mixed.squeeze(0).transpose(0, 1).reshape({tokens, -1});
}

// One new token of every sequence, all keys and values in caches: a thread takes one key head of one sequence after another.
// query: [N, H, d] -> [N, H d]
at::Tensor attend_by_step(const at::Tensor& query, const AttentionRule& rule, const std::vector<KvCache*>& caches,
                          int64_t layer) {
  const int64_t size = query.size(2), heads = query.size(1), key_heads = caches[0]->keys(layer).size(1),
                group = heads / key_heads;
  std::vector<detail::HeadCache> pasts;
  int64_t longest = 0;
  for (const KvCache* cache : caches) {
    const at::Tensor keys = cache->keys(layer), values = cache->values(layer);
    const int64_t seen = rule.window > 0 ? std::min(rule.window, keys.size(0)) : keys.size(0),
                  skipped = (keys.size(0) - seen) * key_heads * size;
    pasts.push_back(
        {keys.const_data_ptr<float>() + skipped, values.const_data_ptr<float>() + skipped, seen, key_heads * size});
    longest = std::max(longest, seen);
  }
  const at::Tensor queries = query.contiguous();
  at::Tensor mixed = at::empty({query.size(0), heads * size}, query.options());
  const float* from = queries.const_data_ptr<float>();
  float* to = mixed.mutable_data_ptr<float>();
  const auto work = static_cast<int64_t>(pasts.size()) * key_heads;
  const int64_t grain = std::max<int64_t>(1, 65536 / (group * longest * size));
  at::parallel_for(0, work, grain, [&](int64_t first, int64_t last) {
    std::vector<float> scores(static_cast<size_t>(group * longest));
    for (int64_t i = first; i < last; ++i) {
      detail::HeadCache past = pasts[static_cast<size_t>(i / key_heads)];
      const int64_t head = i % key_heads, place = (i / key_heads * heads + head * group) * size;
      past.keys += head * size;
      past.values += head * size;
      detail::step_kernels().attend(from + place, group, size, past, static_cast<float>(rule.scale),
                                    static_cast<float>(rule.softcap), scores.data(), to + place);
    }
  });
  return mixed;
}

}  // namespace

at::Tensor ragged_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionRule& rule, const std::vector<int64_t>& lengths,
                            const std::vector<KvCache*>& caches, int64_t layer) {
  const bool plain = rule.softcap == 0 && (rule.window == 0 || std::ranges::max(lengths) <= rule.window);
  if (at::GradMode::is_enabled() && plain && query.is_cpu())
    return causal_attention(query, key, value, rule.scale, lengths);
  if (lengths.size() == 1 && caches.empty()) return attend(query, key, value, rule);
  if (!caches.empty() && query.scalar_type() == at::kFloat &&
      query.size(0) == static_cast<int64_t>(lengths.size())) {  // a step of generation
    for (size_t i = 0; i < caches.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      caches[i]->append(layer, key.narrow(0, row, 1), value.narrow(0, row, 1));
    }
    return attend_by_step(query, rule, caches, layer);
  }
  // split_with_sizes, not narrow: the backward pass of a narrow fills a tensor of the full size for each sequence.
  const std::vector<at::Tensor> queries = query.split_with_sizes(lengths), keys = key.split_with_sizes(lengths),
                                values = value.split_with_sizes(lengths);
  std::vector<at::Tensor> mixed(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (caches.empty()) {
      mixed[i] = attend(queries[i], keys[i], values[i], rule);
    } else {
      caches[i]->append(layer, keys[i], values[i]);
      mixed[i] = attend(queries[i], caches[i]->keys(layer), caches[i]->values(layer), rule);
    }
  }
  return at::cat(mixed);
}

}  // namespace kullback
