#include "kullback/lm/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace kullback {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  std::function<Tensor(const Tensor&)> f;
};

struct Recompute : torch::autograd::Function<Recompute> {
  // `always`: a gradient is wanted of the weights in f even where x takes none, as behind a frozen embedding.
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& always,
                        const c10::intrusive_ptr<Call>& call) {
    (void)always;
    context->save_for_backward({x});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->f(x);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& upstream) {
    const Tensor saved = context->get_saved_variables()[0];
    const auto call = context->saved_data["call"].toCapsule();
    const at::AutoGradMode mode(true);
    const Tensor x = saved.detach().requires_grad_(true);
    const Tensor y = static_cast<Call*>(call.get())->f(x);
    torch::autograd::backward({y}, {upstream[0]});
    return {x.grad(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor recomputed(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  if (!at::GradMode::is_enabled()) return f(x);
  auto call = c10::make_intrusive<Call>();
  call->f = f;
  return Recompute::apply(x, at::zeros({1}).requires_grad_(true), call);
}

}  // namespace kullback
