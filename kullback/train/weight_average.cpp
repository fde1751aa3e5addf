#include "kullback/train/weight_average.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {

using at::Tensor;

Tensor weighted_average(const std::vector<Tensor>& tensors, const std::vector<double>& weights) {
  if (tensors.empty() || tensors.size() != weights.size())
    fail("{} tensors cannot be averaged with {} weights", tensors.size(), weights.size());
  const at::ScalarType type = tensors[0].scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  Tensor sum = at::zeros(tensors[0].sizes(), tensors[0].options().dtype(wide));
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k].sizes() != sum.sizes()) fail("tensors of different shapes cannot be averaged");
    sum = sum + weights[k] * tensors[k].detach().to(wide);
  }
  return sum.to(type);
}

void move_towards(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& policy, double weight) {
  if (reference.size() != policy.size())
    fail("a reference of {} tensors cannot follow a policy of {}", reference.size(), policy.size());
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < reference.size(); ++i) {
    if (reference[i].name != policy[i].name || reference[i].tensor.sizes() != policy[i].tensor.sizes())
      fail("the reference's tensor {} cannot follow the policy's {}", reference[i].name, policy[i].name);
    const Tensor own = reference[i].tensor;
    own.copy_(weight == 1 ? policy[i].tensor.detach()
                          : weighted_average({policy[i].tensor, own}, {weight, 1 - weight}));
  }
}

std::function<void(double)> update_scale(std::vector<NamedTensor> weights, std::vector<NamedTensor> start) {
  if (start.empty()) {
    for (const NamedTensor& t : weights) start.push_back({t.name, t.tensor.detach().clone()});
  }
  return [weights = std::move(weights), start = std::move(start)](double scale) {
    move_towards(weights, start, 1 - scale);
  };
}

}  // namespace kullback
