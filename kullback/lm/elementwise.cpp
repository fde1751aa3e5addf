#include "kullback/lm/elementwise.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kullback/lm/step_kernels.h"

namespace kullback {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// 1 / root mean square of each row. [N, 1]
at::Tensor inverse_rms(const at::Tensor& x, double epsilon) {
  return at::linalg_vector_norm(x, 2, {-1}, true).square_().div_(x.size(-1)).add_(epsilon).rsqrt_();
}

bool by_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.is_cpu() && x.is_contiguous() &&
         weight.is_contiguous() && x.dim() > 0;
}

// One walk over each row.
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!by_kernel(x, weight)) return at::mul(x, inverse_rms(x, epsilon)).mul_(weight);
  at::Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  const float *from = x.const_data_ptr<float>(), *by = weight.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, rows, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, width)),
                   [&](int64_t first, int64_t last) {
                     for (int64_t row = first; row < last; ++row)
                       detail::step_kernels().rms_norm(from + row * width, by, width, epsilon, to + row * width);
                   });
  return y;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    context->save_for_backward({x, weight});
    context->saved_data["epsilon"] = epsilon;
    return rms_normed(x, weight, epsilon);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto [dx, d_weight] =
        rms_norm_backward(gradients[0], saved[0], saved[1], context->saved_data["epsilon"].toDouble(),
                          context->needs_input_grad(0), context->needs_input_grad(1));
    return {dx, d_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  // A short type would round the whole row's scale alike.
  if (at::isReducedFloatingType(x.scalar_type()))
    return rms_norm(x.to(at::kFloat), weight.to(at::kFloat), epsilon).to(x.scalar_type());
  if (at::GradMode::is_enabled()) return RmsNorm::apply(x, weight, epsilon);
  return rms_normed(x, weight, epsilon);
}

std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                    const at::Tensor& weight, double epsilon, bool of_x,
                                                    bool of_weight) {
  const at::Tensor scale = inverse_rms(x, epsilon);
  const at::Tensor normed = x * scale;           // [N, D]
  const at::Tensor product = gradient * normed;  // [N, D]
  at::Tensor dx, d_weight;
  if (of_weight) d_weight = product.sum(0);
  if (of_x) {
    const at::Tensor along = at::mv(product, weight).div_(x.size(-1)).unsqueeze(-1);  // mean of dy w normed, [N, 1]
    dx = at::mul(gradient, weight).addcmul_(normed, along, -1).mul_(scale);
  }
  return {dx, d_weight};
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias.defined() ? std::optional(bias) : std::nullopt, epsilon);
}

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu: return at::silu(x);
    case Activation::gelu: return at::gelu(x);
    case Activation::gelu_tanh: return at::gelu(x, "tanh");
    case Activation::relu: return at::relu(x);
  }
  throw std::logic_error("an activation without a rule");
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

std::pair<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& gradient, const at::Tensor& gate,
                                                  const at::Tensor& up) {
  return {at::silu_backward(gradient * up, gate), at::silu(gate).mul_(gradient)};
}

}  // namespace kullback
