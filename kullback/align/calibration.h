#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// How well confidence says how often one is right: bins of equal width over [0, 1], the last one closed.
struct Calibration {
  at::Tensor error;                        ///< scalar: sum over bins of share * |accuracy - mean confidence|
  at::Tensor accuracy, confidence, count;  ///< [bins]; 0 where a bin is empty
};
/// confidence [N] in [0, 1], correct [N] (1 or 0). Expected calibration error, Naeini et al. 2015.
Calibration calibration(const at::Tensor& confidence, const at::Tensor& correct, int64_t bins);

}  // namespace kullback
