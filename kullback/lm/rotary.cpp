#include "kullback/lm/rotary.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

namespace kullback {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Every head of rows [first, last). x, y: [N, heads, size]; cosine, sine: [N, half]
void turn_rows(const float* x, const float* cosine, const float* sine, float direction, int64_t first, int64_t last,
               at::IntArrayRef shape, int64_t half, float* y) {
  const int64_t heads = shape[1], size = shape[2];
  for (int64_t head = first * heads; head < last * heads; ++head) {
    const float *from = x + head * size, *c = cosine + head / heads * half, *s = sine + head / heads * half;
    float* to = y + head * size;
    for (int64_t j = 0; j < half; ++j) {
      const float a = from[j], b = from[half + j], turned = direction * s[j];
      to[j] = a * c[j] - b * turned;
      to[half + j] = b * c[j] + a * turned;
    }
    for (int64_t j = 2 * half; j < size; ++j) to[j] = from[j];
  }
}

at::Tensor turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, double direction) {
  const int64_t half = cosine.size(-1), rest = x.size(-1) - 2 * half;
  at::Tensor y = at::empty(x.sizes(), x.options());  // contiguous whatever the strides of x
  if (x.scalar_type() == at::kFloat && x.is_cpu() && x.dim() == 3 && x.is_contiguous()) {
    const float *from = x.const_data_ptr<float>(), *c = cosine.const_data_ptr<float>(),
                *s = sine.const_data_ptr<float>();
    float* to = y.mutable_data_ptr<float>();
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, x.size(1) * x.size(2)));
    at::parallel_for(0, x.size(0), grain, [&](int64_t first, int64_t last) {
      turn_rows(from, c, s, static_cast<float>(direction), first, last, x.sizes(), half, to);
    });
    return y;
  }
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor y1 = y.narrow(-1, 0, half), y2 = y.narrow(-1, half, half);
  at::mul_out(y1, x1, cosine).addcmul_(x2, sine, -direction);
  at::mul_out(y2, x2, cosine).addcmul_(x1, sine, direction);
  if (rest > 0) y.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  return y;
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turn(x, cosine, sine, 1);
  }

  // A rotation's transpose turns back; a magnitude stays. What passed through is given back as it came.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {turn(gradients[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Rotation rotation(const Rope& rope, int64_t size, const std::vector<PositionRun>& runs, at::ScalarType dtype) {
  const bool by_context = rope.scaling == Rope::Scaling::dynamic || rope.scaling == Rope::Scaling::longrope;
  std::vector<double> frequencies = rope_frequencies(rope, size);
  int64_t n = 0;
  for (const PositionRun& run : runs) n += run.count;
  at::Tensor angles = at::empty({n, 1, size / 2}, at::kDouble);
  double* angle = angles.mutable_data_ptr<double>();
  for (const PositionRun& run : runs) {
    if (by_context) frequencies = rope_frequencies(rope, size, run.context);
    for (int64_t position = run.first; position < run.first + run.count; ++position) {
      for (const double frequency : frequencies) *angle++ = static_cast<double>(position) * frequency;
    }
  }
  const double magnitude = rope_magnitude(rope);
  return {at::cos(angles).mul_(magnitude).to(dtype), at::sin(angles).mul_(magnitude).to(dtype)};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& rotation) {
  if (at::GradMode::is_enabled()) return Rotate::apply(x, rotation.cosine, rotation.sine);
  return turn(x, rotation.cosine, rotation.sine, 1);
}

}  // namespace kullback
