#include "kullback/distill/reduction.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

const Choices<Reduction>& reductions() {
  static const Choices<Reduction> all{
      {"token_mean", Reduction::token_mean}, {"sequence_mean", Reduction::sequence_mean}, {"sum", Reduction::sum}};
  return all;
}

Tensor token_weights(const Tensor& mask, Reduction reduction, double tokens_in_step, double sequences_in_step,
                     const Tensor& weight) {
  Tensor counted = mask.to(at::kDouble);        // [B,T]
  const Tensor tokens = counted.sum(-1, true);  // [B,1]
  Tensor sequences = (tokens > 0).to(at::kDouble);
  if (weight.defined()) {
    const Tensor w = weight.to(at::kDouble).unsqueeze(-1);
    counted = counted * w, sequences = sequences * w;
  }
  if (reduction == Reduction::sum) return counted;
  const auto count = [](double in_step, const Tensor& here) {
    if (in_step > 0) return in_step;
    const double sum = here.sum().item<double>();
    return sum > 0 ? sum : 1;
  };
  if (reduction == Reduction::token_mean) return counted / count(tokens_in_step, counted);
  return counted / tokens.clamp_min(1) / count(sequences_in_step, sequences);
}

Tensor at_places(const Tensor& values, const Tensor& places, const Tensor& mask) {
  return at::zeros({mask.numel()}, values.options()).index_put({places}, values).reshape(mask.sizes());
}

}  // namespace kullback
