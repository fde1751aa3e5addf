#include "kullback/lm/linear.h"

#include <array>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kullback/lm/elementwise.h"
#include "kullback/lm/weights.h"

namespace kullback {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x W^T, plus scale * reduced b^T with an adapter, where reduced = x a^T [N, r]
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& b, double scale, const Tensor& reduced) {
  Tensor y = is_short(weight, x.scalar_type()) ? kept_product(x, weight) : at::linear(x, weight);
  return b.defined() ? y.addmm_(reduced, b.t(), 1, scale) : y;
}

Tensor reduced_by(const Tensor& a, const Tensor& x) { return a.defined() ? at::mm(x, a.t()) : Tensor(); }

// The gradients of x, weight, a and b from that of the product, those that `wanted` asks for.
struct ProductGradients {
  Tensor x, weight, a, b;
};

ProductGradients product_gradients(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& a,
                                   const Tensor& b, double scale, const Tensor& reduced, std::array<bool, 4> wanted) {
  ProductGradients d;
  const Tensor d_reduced = a.defined() ? at::mm(dy, b).mul_(scale) : Tensor();  // [N, r]
  if (wanted[0]) {
    d.x = at::mm(dy, weight);
    if (a.defined()) d.x.addmm_(d_reduced, a);
  }
  if (wanted[1]) d.weight = at::mm(dy.t(), x);
  if (wanted[2]) d.a = at::mm(d_reduced.t(), x);
  if (wanted[3]) d.b = at::mm(dy.t(), reduced).mul_(scale);
  return d;
}

// One node instead of four: the low-rank part is added into the product of the frozen weight, forward and backward, so
// no [N, out] tensor exists for it alone, and only x and its r-wide image are kept.
struct LowRankLinear : torch::autograd::Function<LowRankLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& a,
                        const Tensor& b, double scale) {
    const Tensor reduced = reduced_by(a, x);
    context->save_for_backward({x, weight, a, b, reduced});
    context->saved_data["scale"] = scale;
    return product(x, weight, b, scale, reduced);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    std::array<bool, 4> wanted{};
    for (size_t i = 0; i < 4; ++i) wanted[i] = context->needs_input_grad(i);
    const ProductGradients d = product_gradients(gradients[0], saved[0], saved[1], saved[2], saved[3],
                                                 context->saved_data["scale"].toDouble(), saved[4], wanted);
    return {d.x, d.weight, d.a, d.b, Tensor()};
  }
};

// The widest tensor of a layer, silu(gate) * up, is not kept: it costs one pass over its two factors to make again.
struct SwiGluLinear : torch::autograd::Function<SwiGluLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up, const Tensor& weight,
                        const std::optional<Tensor>& low_rank_a, const std::optional<Tensor>& low_rank_b,
                        double scale) {
    const Tensor a = low_rank_a.value_or(Tensor()), b = low_rank_b.value_or(Tensor());
    const Tensor x = swiglu(gate, up), reduced = reduced_by(a, x);
    context->save_for_backward({gate, up, weight, a, b, reduced});
    context->saved_data["scale"] = scale;
    return product(x, weight, b, scale, reduced);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    std::array<bool, 4> wanted{true};
    for (size_t i = 1; i < (saved[3].defined() ? 4 : 2); ++i) wanted[i] = context->needs_input_grad(i + 1);
    const Tensor x = wanted[1] || wanted[2] ? swiglu(gate, up) : Tensor();
    const ProductGradients d = product_gradients(gradients[0], x, saved[2], saved[3], saved[4],
                                                 context->saved_data["scale"].toDouble(), saved[5], wanted);
    const auto [d_gate, d_up] = swiglu_backward(d.x, gate, up);
    return {d_gate, d_up, d.weight, d.a, d.b, Tensor()};
  }
};

// Low-rank factors in use, or none.
LowRank in_use(const Linear& linear, AdapterUse use) {
  return linear.adapter && use == AdapterUse::on ? *linear.adapter : LowRank{};
}

Tensor with_bias(Tensor y, const Tensor& bias) { return bias.defined() ? y.add_(bias) : y; }

}  // namespace

Tensor Linear::operator()(const Tensor& x, AdapterUse use) const {
  const auto [a, b, scale] = in_use(*this, use);
  const bool kept_short = is_short(weight, x.scalar_type());
  if (!a.defined() && !kept_short)
    return at::linear(x, weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
  return with_bias(at::GradMode::is_enabled() && !kept_short ? LowRankLinear::apply(x, weight, a, b, scale)
                                                             : product(x, weight, b, scale, reduced_by(a, x)),
                   bias);
}

Tensor swiglu_linear(const Tensor& gate, const Tensor& up, const Linear& down, AdapterUse use) {
  if (!at::GradMode::is_enabled() || is_short(down.weight, gate.scalar_type())) return down(swiglu(gate, up), use);
  const auto [a, b, scale] = in_use(down, use);
  const auto if_any = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  return with_bias(SwiGluLinear::apply(gate, up, down.weight, if_any(a), if_any(b), scale), down.bias);
}

}  // namespace kullback
