#include "kullback/divergence/sampled_kl.h"

#include <ATen/ATen.h>

namespace kullback {

at::Tensor k3_estimate(const at::Tensor& log_ratio) { return at::expm1(-log_ratio) + log_ratio; }

}  // namespace kullback
