#include "kullback/align/head_gradients.h"

#include <ATen/ATen.h>

#include "kullback/divergence/head.h"
#include "kullback/train/preference.h"

namespace kullback {

using at::Tensor;

namespace {

/// onehot(label) - softmax, 0 where masked. [B,T,V]
Tensor residuals(const Tensor& weight, const HeadSide& side) {
  const Tensor law = at::softmax(at::matmul(side.hidden, weight.t()), -1);
  const Tensor hit = at::zeros_like(law).scatter(-1, side.labels.unsqueeze(-1), 1.0);
  return masked(hit - law, side.mask.unsqueeze(-1));
}

}  // namespace

Tensor head_logps(const Tensor& weight, const HeadSide& side) {
  const Rows rows{.hidden = side.hidden.flatten(0, 1), .weight = weight, .bias = {}};
  return masked(label_logps(rows, side.labels.flatten()).reshape(side.labels.sizes()), side.mask);
}

Tensor head_gradients(const Tensor& weight, const HeadSide& side) {
  return at::matmul(residuals(weight, side).transpose(1, 2), masked(side.hidden, side.mask.unsqueeze(-1)));
}

Tensor token_cosines(const Tensor& weight, const HeadSide& chosen, const HeadSide& rejected, int64_t row) {
  const auto factors = [&](const HeadSide& side) {  // a token's gradient is the outer product of these two
    const Tensor counted = side.mask[row].nonzero().squeeze(1);
    const Tensor r = residuals(weight, side)[row].index_select(0, counted),
                 h = side.hidden[row].index_select(0, counted);
    return std::pair{r / r.norm(2, -1, true), h / h.norm(2, -1, true)};
  };
  const auto [r_w, h_w] = factors(chosen);
  const auto [r_l, h_l] = factors(rejected);
  return at::matmul(r_w, r_l.t()) * at::matmul(h_w, h_l.t());
}

}  // namespace kullback
