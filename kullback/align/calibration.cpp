#include "kullback/align/calibration.h"

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

Calibration calibration(const Tensor& confidence, const Tensor& correct, int64_t bins) {
  const Tensor c = confidence.to(at::kDouble);
  const Tensor bin = (c * bins).floor().clamp(0, bins - 1).to(at::kLong);  // confidence 1 belongs to the last bin
  const Tensor none = at::zeros({bins}, at::kDouble);
  const Tensor count = none.index_add(0, bin, at::ones_like(c)), some = count.clamp_min(1);
  Calibration result{.error = {},
                     .accuracy = none.index_add(0, bin, correct.to(at::kDouble)) / some,
                     .confidence = none.index_add(0, bin, c) / some,
                     .count = count};
  result.error = (count * (result.accuracy - result.confidence).abs()).sum() / count.sum().clamp_min(1);
  return result;
}

}  // namespace kullback
