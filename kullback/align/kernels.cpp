#include "kullback/align/kernels.h"

#include <array>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {

using at::Tensor;

namespace {

Tensor square_distance(const Tensor& x, const Tensor& y) { return (x - y).square().sum(-1); }

}  // namespace

Tensor log_kernel(Kernel kernel, const Tensor& x, const Tensor& y, const KernelParameters& p) {
  switch (kernel) {
    case Kernel::polynomial: return p.degree * ((x * y).sum(-1) + p.c).clamp_min(1e-12).log();
    case Kernel::rbf: return -square_distance(x, y) / (2 * p.sigma.clamp_min(1e-6).square());
    case Kernel::spectral:
      return at::logsumexp(
          p.lambdas.clamp_min(1e-12).log() - p.alphas.clamp_min(0) * square_distance(x, y).unsqueeze(-1), -1);
    case Kernel::mahalanobis: return -(at::matmul(x - y, p.sigma_inverse) * (x - y)).sum(-1) / 2;
    case Kernel::hmk: break;
  }
  const Tensor top = at::log_softmax(p.top_logits, 0), local = at::log_softmax(p.local_logits, 0),
               global = at::log_softmax(p.global_logits, 0);
  const std::array<Kernel, 4> parts{Kernel::rbf, Kernel::polynomial, Kernel::spectral, Kernel::mahalanobis};
  std::vector<Tensor> terms;
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor weight = top[i / 2] + (i < 2 ? local : global)[i % 2];
    terms.push_back(weight + log_kernel(parts[static_cast<size_t>(i)], x, y, p));
  }
  return at::logsumexp(at::stack(terms), 0);
}

Tensor inverse_second_moment(const Tensor& prompt, const Tensor& chosen, const Tensor& rejected, double ridge) {
  const Tensor d = at::cat({prompt - chosen, prompt - rejected});  // [2B,D]
  return (at::matmul(d.t(), d) / static_cast<double>(d.size(0)) + ridge * at::eye(d.size(1), d.options())).inverse();
}

KernelSelection select_kernel(const Tensor& prompt, const Tensor& chosen, const Tensor& rejected,
                              const KernelParameters& p) {
  const Tensor near = square_distance(prompt, chosen), far = square_distance(prompt, rejected), lead = far - near;
  KernelSelection s{.separation = square_distance(chosen, rejected).mean(),
                    .variance = lead.var(/*unbiased=*/false),
                    .tightness = (near / far).mean(),
                    .gap = (lead / (far + near)).mean(),
                    .score = {},
                    .accuracy = {}};
  const std::array<Kernel, 4> order{Kernel::polynomial, Kernel::rbf, Kernel::mahalanobis, Kernel::spectral};
  std::vector<Tensor> scores, accuracies;
  for (const Kernel kernel : order) {
    const Tensor ratio = log_kernel(kernel, prompt, chosen, p) - log_kernel(kernel, prompt, rejected, p);
    scores.push_back(at::log_sigmoid(ratio).mean());
    accuracies.push_back((ratio > 0).to(at::kDouble).mean());
  }
  s.score = at::stack(scores), s.accuracy = at::stack(accuracies);
  s.kernel = order[static_cast<size_t>(s.score.argmax().item<int64_t>())];
  return s;
}

}  // namespace kullback
