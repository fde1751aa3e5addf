#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// x W^T for each of several kept matrices (weights.h) of one row length, all in one walk of the threads: a step of generation
/// has so little to do with each matrix that starting the threads for each would show. x: [N, length] float32, N at most
/// few_rows -> [N, rows] each. Takes no gradient. A row's product does not depend, to the last bit, on the rows beside it.
std::vector<at::Tensor> few_row_products(const at::Tensor& x, const std::vector<at::Tensor>& kept);

}  // namespace kullback
