#include "kullback/lm/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace kullback {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor low_rank_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& b, double scale,
                           const at::Tensor& reduced) {
  return at::linear(x, weight).addmm_(reduced, b.t(), 1, scale);
}

// One node instead of four: the low-rank part is added into the product of the frozen weight, forward and backward, so
// no [N, out] tensor exists for it alone, and only x and its r-wide image are kept.
struct LowRankLinear : torch::autograd::Function<LowRankLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& a, const at::Tensor& b, double scale) {
    const at::Tensor reduced = at::mm(x, a.t());  // [N, r]
    context->save_for_backward({x, weight, a, b, reduced});
    context->saved_data["scale"] = scale;
    return low_rank_linear(x, weight, b, scale, reduced);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &a = saved[2], &b = saved[3], &reduced = saved[4];
    const at::Tensor& dy = gradients[0];  // [N, out]
    const double scale = context->saved_data["scale"].toDouble();
    const at::Tensor d_reduced = at::mm(dy, b).mul_(scale);  // [N, r]
    at::Tensor dx, d_weight, da, db;
    if (context->needs_input_grad(0)) dx = at::mm(dy, weight).addmm_(d_reduced, a);
    if (context->needs_input_grad(1)) d_weight = at::mm(dy.t(), x);
    if (context->needs_input_grad(2)) da = at::mm(d_reduced.t(), x);
    if (context->needs_input_grad(3)) db = at::mm(dy.t(), reduced).mul_(scale);
    return {dx, d_weight, da, db, at::Tensor()};
  }
};

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x, AdapterUse use) const {
  if (!adapter || use == AdapterUse::off) {
    return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
  }
  const auto& [a, b, scale] = *adapter;
  at::Tensor y = at::GradMode::is_enabled() ? LowRankLinear::apply(x, weight, a, b, scale)
                                            : low_rank_linear(x, weight, b, scale, at::mm(x, a.t()));
  return bias.defined() ? y.add_(bias) : y;
}

}  // namespace kullback
