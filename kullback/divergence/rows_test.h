#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/between_vectors.h"
#include "kullback/divergence/head.h"

namespace kullback::test {

inline at::Tensor normal(at::IntArrayRef shape, at::ScalarType type, int64_t seed = 1) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble)).to(type);
}

/// D(p||q) of two rows of logits, in float64.
inline double between_rows(const Divergence& d, const at::Tensor& p, const at::Tensor& q) {
  const at::Tensor x = p.detach().to(at::kDouble).contiguous(), y = q.detach().to(at::kDouble).contiguous();
  return between_logits(d, {x.const_data_ptr<double>(), static_cast<size_t>(x.numel())},
                        {y.const_data_ptr<double>(), static_cast<size_t>(y.numel())});
}

/// The largest |a - b| / max(1, |b|).
inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / b.to(at::kDouble).abs().clamp_min(1)).max().item<double>();
}

/// What an Error says.
inline std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Sizes around those of vectors, and a large one.
inline std::vector<int64_t> sizes() { return {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000}; }

}  // namespace kullback::test
