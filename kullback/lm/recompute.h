#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace kullback {

/// f(x), of which the backward pass keeps x alone and makes the rest anew (Chen et al. 2016, arXiv 1604.06174): memory for
/// one more forward pass. `f` may use weights that require a gradient; what it captures lives until then. Where no gradient
/// is taken, f(x) itself.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x);

}  // namespace kullback
