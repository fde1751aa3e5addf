#include "kullback/lm/causal_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace kullback {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [T, K, d] -> [1, H, T, d], as the kernel wants it, each head of keys or values repeated for its group of H / K queries
Tensor heads_first(const Tensor& x, int64_t heads) {
  const Tensor y = x.transpose(0, 1).unsqueeze(0);
  return x.size(1) == heads ? y : y.repeat_interleave(heads / x.size(1), 1);
}

// The gradient of heads_first: [1, H, T, d] -> [T, K, d]
Tensor heads_last(const Tensor& gradient, int64_t key_heads) {
  const Tensor x = gradient.squeeze(0).transpose(0, 1);  // [T, H, d]
  return x.size(1) == key_heads ? x : x.reshape({x.size(0), key_heads, -1, x.size(2)}).sum(2);
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& key, const Tensor& value,
                        double scale, const std::vector<int64_t>& lengths) {
    const int64_t heads = query.size(1);
    const Tensor mixed = at::empty(query.sizes(), query.options());  // [N, H, d]
    std::vector<Tensor> normalisers;                                 // [1, H, T] of each sequence
    int64_t first = 0;
    for (const int64_t count : lengths) {
      const auto part = [&](const Tensor& x) { return heads_first(x.narrow(0, first, count), heads); };
      const auto [out, normaliser] = at::_scaled_dot_product_flash_attention_for_cpu(
          part(query), part(key), part(value), 0.0, /*is_causal=*/true, std::nullopt, scale);
      mixed.narrow(0, first, count).copy_(out.squeeze(0).transpose(0, 1));
      normalisers.push_back(normaliser);
      first += count;
    }
    context->save_for_backward({query, key, value, mixed, at::cat(normalisers, 2)});
    context->saved_data["scale"] = scale;
    context->saved_data["lengths"] = lengths;
    return mixed.view({query.size(0), -1});
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &query = saved[0], &key = saved[1], &value = saved[2], &mixed = saved[3], &normalisers = saved[4];
    const int64_t heads = query.size(1), key_heads = key.size(1);
    const Tensor gradient = gradients[0].view(query.sizes());
    Tensor d_query = at::empty(query.sizes(), query.options()), d_key = at::empty(key.sizes(), key.options()),
           d_value = at::empty(value.sizes(), value.options());
    int64_t first = 0;
    for (const int64_t count : context->saved_data["lengths"].toIntVector()) {
      const auto part = [&](const Tensor& x) { return heads_first(x.narrow(0, first, count), heads); };
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(gradient), part(query), part(key), part(value), part(mixed), normalisers.narrow(2, first, count), 0.0,
          /*is_causal=*/true, std::nullopt, context->saved_data["scale"].toDouble());
      d_query.narrow(0, first, count).copy_(heads_last(dq, heads));
      d_key.narrow(0, first, count).copy_(heads_last(dk, key_heads));
      d_value.narrow(0, first, count).copy_(heads_last(dv, key_heads));
      first += count;
    }
    return {d_query, d_key, d_value, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor causal_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale,
                        const std::vector<int64_t>& lengths) {
  return CausalAttention::apply(query, key, value, scale, lengths);
}

}  // namespace kullback
