// The streaming head inside one's own LibTorch code: a model made of plain tensors learns another model's next-token laws, and
// no table of tokens x vocabulary ever exists.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <kullback/divergence/head.h>

using namespace kullback;

int main() {
  constexpr int64_t tokens = 256, vocabulary = 20000, width = 32;
  at::manual_seed(1);
  const at::Tensor inputs = at::randn({tokens, width});
  const at::Tensor teacher_head = at::randn({vocabulary, width});                   // [V,D] of the teacher
  at::Tensor layer = at::randn({width, width}).mul_(0.1).requires_grad_(true);      // ours: one layer
  at::Tensor head = at::randn({vocabulary, width}).mul_(0.1).requires_grad_(true);  // and a head

  const HeadRequest wanted{.divergences = {divergence("js:0.5").from_reference()}};
  HeadStatistics weights;
  weights.divergences = {at::full({tokens}, 1.0 / tokens)};  // the loss is their mean
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    const at::Tensor hidden = at::tanh(at::matmul(inputs, layer));  // [N,D], any autograd code
    const Rows ours{.hidden = hidden, .weight = head}, theirs{.hidden = inputs, .weight = teacher_head};
    const HeadLoss loss = head_loss(ours, theirs, wanted, weights);
    loss.loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor* parameter : {&layer, &head}) {
      parameter->sub_(parameter->grad() / parameter->grad().norm());  // steps of length 1
      parameter->mutable_grad().reset();
    }
    (step == 0 ? first : last) = loss.loss.item<double>();
  }
  fmt::print("Jensen-Shannon to the teacher: {:.4f} at first, {:.4f} at last\n", first, last);
  return last < first ? 0 : 1;
}
