#pragma once

#include <functional>
#include <vector>

#include "kullback/lm/transformer.h"

namespace kullback {

/// sum_k weights[k] * tensors[k], summed in float32 (float64 where they are) and cast back once. Shapes must agree.
at::Tensor weighted_average(const std::vector<at::Tensor>& tensors, const std::vector<double>& weights);

/// In place: weight * policy + (1 - weight) * reference, tensor by tensor of the same names.
void move_towards(const std::vector<NamedTensor>& reference, const std::vector<NamedTensor>& policy, double weight);

/// Scales by a number all that happens to these weights from now on: what a limit's settling asks for. A copy is kept of
/// where they start, or `start` is, the same tensors of another model.
std::function<void(double)> update_scale(std::vector<NamedTensor> weights, std::vector<NamedTensor> start = {});

}  // namespace kullback
