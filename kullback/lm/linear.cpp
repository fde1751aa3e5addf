#include "kullback/lm/linear.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kullback/lm/elementwise.h"
#include "kullback/lm/step_product.h"
#include "kullback/lm/weights.h"

namespace kullback {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x W^T, plus scale * reduced b^T with an adapter, where reduced = x a^T [N, r]
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& b, double scale, const Tensor& reduced) {
  Tensor y = weight_product(x, weight);
  return b.defined() ? y.addmm_(reduced, b.t(), 1, scale) : y;
}

Tensor reduced_by(const Tensor& a, const Tensor& x) { return a.defined() ? at::mm(x, a.t()) : Tensor(); }

// The gradients of x, weight, a and b from that of the product, those that `wanted` asks for.
struct ProductGradients {
  Tensor x, weight, a, b;
};

struct Wanted {
  bool x = true, weight = true, a = true, b = true;
};

ProductGradients product_gradients(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& a,
                                   const Tensor& b, double scale, const Tensor& reduced, Wanted wanted) {
  ProductGradients d;
  const Tensor d_reduced = a.defined() ? at::mm(dy, b).mul_(scale) : Tensor();  // [N, r]
  if (wanted.x) {
    d.x = at::mm(dy, weight);
    if (a.defined()) d.x.addmm_(d_reduced, a);
  }
  if (wanted.weight) d.weight = at::mm(dy.t(), x);
  if (wanted.a) d.a = at::mm(d_reduced.t(), x);
  if (wanted.b) d.b = at::mm(dy.t(), reduced).mul_(scale);
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
    const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2),
                        context->needs_input_grad(3)};
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
    const bool low_rank = saved[3].defined();
    const Wanted wanted{true, context->needs_input_grad(2), low_rank && context->needs_input_grad(3),
                        low_rank && context->needs_input_grad(4)};
    const Tensor x = wanted.weight || wanted.a ? swiglu(gate, up) : Tensor();
    const ProductGradients d = product_gradients(gradients[0], x, saved[2], saved[3], saved[4],
                                                 context->saved_data["scale"].toDouble(), saved[5], wanted);
    const auto [d_gate, d_up] = swiglu_backward(d.x, gate, up);
    return {d_gate, d_up, d.weight, d.a, d.b, Tensor()};
  }
};

// What `starts` (one more than there are layers) says of a list of tensors: each layer's weight, and a and b if it has them.
struct Factors {
  Tensor weight, a, b;
};

Factors factors(at::TensorList tensors, const std::vector<int64_t>& starts, size_t layer) {
  const int64_t first = starts[layer];
  const bool low_rank = starts[layer + 1] - first == 3;
  return {tensors[first], low_rank ? tensors[first + 1] : Tensor(), low_rank ? tensors[first + 2] : Tensor()};
}

// A normed input is read by two or three layers: one node for the norm and all of them keeps x alone.
struct RmsNormLinears : torch::autograd::Function<RmsNormLinears> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& norm, at::TensorList tensors,
                               double epsilon, const std::vector<int64_t>& starts, const std::vector<double>& scales) {
    variable_list kept{x, norm}, images;
    kept.insert(kept.end(), tensors.begin(), tensors.end());
    context->save_for_backward(kept);
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["starts"] = starts;
    context->saved_data["scales"] = scales;
    const Tensor normed = rms_norm(x, norm, epsilon);
    for (size_t i = 0; i < scales.size(); ++i) {
      const auto [weight, low_rank_a, low_rank_b] = factors(tensors, starts, i);
      images.push_back(product(normed, weight, low_rank_b, scales[i], reduced_by(low_rank_a, normed)));
    }
    return images;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::TensorList tensors = at::TensorList(saved).slice(2);
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const std::vector<int64_t> starts = context->saved_data["starts"].toIntVector();
    const std::vector<double> scales = context->saved_data["scales"].toDoubleVector();
    const Tensor &x = saved[0], &norm = saved[1], normed = rms_norm(x, norm, epsilon);
    const bool of_x = context->needs_input_grad(0), of_norm = context->needs_input_grad(1);
    variable_list result(2 + tensors.size() + 3);
    Tensor d_normed;
    for (size_t i = 0; i < scales.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const auto [weight, a, b] = factors(tensors, starts, i);
      const auto place = static_cast<size_t>(starts[i]) + 2;
      const auto wanted_at = [&](size_t at) { return context->needs_input_grad(at); };
      const Wanted wanted{of_x || of_norm, wanted_at(place), a.defined() && wanted_at(place + 1),
                          b.defined() && wanted_at(place + 2)};
      const ProductGradients d = product_gradients(gradients[i], normed, weight, a, b, scales[i],
                                                   wanted.b ? reduced_by(a, normed) : Tensor(), wanted);
      if (wanted.x) d_normed = d_normed.defined() ? d_normed.add_(d.x) : d.x;
      result[place] = d.weight;
      if (a.defined()) result[place + 1] = d.a, result[place + 2] = d.b;
    }
    if (d_normed.defined())
      std::tie(result[0], result[1]) = rms_norm_backward(d_normed, x, norm, epsilon, of_x, of_norm);
    return result;
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
  const bool by_vector_code = is_short(weight, x.scalar_type()) || is_step(x, weight);
  if (!a.defined() && !by_vector_code)
    return at::linear(x, weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
  return with_bias(at::GradMode::is_enabled() && !by_vector_code ? LowRankLinear::apply(x, weight, a, b, scale)
                                                                 : product(x, weight, b, scale, reduced_by(a, x)),
                   bias);
}

Tensor swiglu_linear(const Tensor& gate, const Tensor& up, const Linear& down, AdapterUse use) {
  if (!at::GradMode::is_enabled() || is_short(down.weight, gate.scalar_type())) return down(swiglu(gate, up), use);
  const auto [a, b, scale] = in_use(down, use);
  const auto if_any = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  return with_bias(SwiGluLinear::apply(gate, up, down.weight, if_any(a), if_any(b), scale), down.bias);
}

std::vector<Tensor> rms_norm_linears(const Tensor& x, const Tensor& weight, double epsilon,
                                     const std::vector<std::reference_wrapper<const Linear>>& layers, AdapterUse use) {
  const auto all = [&](const auto& holds) { return std::ranges::all_of(layers, holds); };
  const bool differentiable = at::GradMode::is_enabled() && !at::isReducedFloatingType(x.scalar_type()) &&
                              all([&](const Linear& one) { return !is_short(one.weight, x.scalar_type()); });
  variable_list images, tensors;
  if (!differentiable) {
    const Tensor normed = rms_norm(x, weight, epsilon);
    if (!all([&](const Linear& one) { return is_step(normed, one.weight) && !in_use(one, use).a.defined(); })) {
      for (const Linear& layer : layers) images.push_back(layer(normed, use));
      return images;
    }
    for (const Linear& layer : layers) tensors.push_back(layer.weight);
    images = few_row_products(normed, tensors);
  } else {
    std::vector<int64_t> starts{0};
    std::vector<double> scales;
    for (const Linear& layer : layers) {
      const LowRank low_rank = in_use(layer, use);
      tensors.push_back(layer.weight);
      if (low_rank.a.defined()) tensors.insert(tensors.end(), {low_rank.a, low_rank.b});
      starts.push_back(static_cast<int64_t>(tensors.size()));
      scales.push_back(low_rank.scale);
    }
    images = RmsNormLinears::apply(x, weight, at::TensorList(tensors), epsilon, starts, scales);
  }
  for (size_t i = 0; i < layers.size(); ++i) images[i] = with_bias(images[i], layers[i].get().bias);
  return images;
}

}  // namespace kullback
