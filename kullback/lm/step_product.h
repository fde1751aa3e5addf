#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Whether x W^T is a step of generation that the vector code of few_row_products takes: few rows of float32, any type that W
/// may be kept in. Only in inference mode, which generation turns on: elsewhere a float32 model's numbers must be the same to
/// the last bit with and without gradients.
bool is_step(const at::Tensor& x, const at::Tensor& weight);

/// x W^T [N, rows], by whatever is fastest for so many rows and for the type that W is kept in. Takes gradients where W is of
/// the type of x. x: [N, length]
at::Tensor weight_product(const at::Tensor& x, const at::Tensor& weight);

/// x W^T for each of several kept matrices (weights.h) of one row length, all in one walk of the threads: a step of generation
/// has so little to do with each matrix that starting the threads for each would show. x: [N, length] float32, N at most
/// few_rows -> [N, rows] each. Takes no gradient. A row's product does not depend, to the last bit, on the rows beside it.
std::vector<at::Tensor> few_row_products(const at::Tensor& x, const std::vector<at::Tensor>& kept);

}  // namespace kullback
