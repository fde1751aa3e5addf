#include "kullback/train/preference.h"

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

Tensor masked(const Tensor& values, const Tensor& mask) {
  return at::where(mask, values, at::zeros({}, values.options()));
}

Tensor sequence_sum(const Tensor& values, const Tensor& mask) { return masked(values, mask).sum(-1); }

Tensor token_counts(const Tensor& mask, const Tensor& like) { return mask.sum(-1).to(like.scalar_type()); }

Side without_forbidden_tokens(Side side) {
  if (side.reference_logps.defined()) {
    side.mask = side.mask & ~(at::isneginf(side.logps.detach()) & at::isneginf(side.reference_logps));
  }
  return side;
}

Tensor mean_over_pairs(const Tensor& losses, const PreferenceBatch& batch) {
  const double pairs = batch.pairs_in_step > 0 ? batch.pairs_in_step : static_cast<double>(losses.size(0));
  const Tensor weighted = batch.weight.defined() ? losses * batch.weight.to(losses.scalar_type()) : losses;
  return weighted.sum() / pairs;
}

}  // namespace kullback
