#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

enum class Kernel { polynomial, rbf, spectral, mahalanobis, hmk };

/// Parameters of the kernels, tensors where they may be trained. Das et al. 2025, arXiv 2501.03271.
struct KernelParameters {
  at::Tensor sigma, c;                                 ///< scalars: width of rbf, offset of the polynomial
  double degree = 2;                                   ///< of the polynomial
  at::Tensor lambdas, alphas;                          ///< [K] of the spectral kernel: weights > 0 and rates >= 0
  at::Tensor sigma_inverse;                            ///< [D,D] of mahalanobis
  at::Tensor local_logits, global_logits, top_logits;  ///< [2] each, of the mixture hmk: (rbf, polynomial), (spectral,
                                                       ///< mahalanobis), (local, global)
};
/// ln K(x, y) of rows, [B,D] each -> [B], in log space throughout: far embeddings do not underflow.
at::Tensor log_kernel(Kernel kernel, const at::Tensor& x, const at::Tensor& y, const KernelParameters& parameters);

/// Inverse of the second moment of the differences x - y+ and x - y-, plus a ridge. [B,D] each -> [D,D]
at::Tensor inverse_second_moment(const at::Tensor& prompt, const at::Tensor& chosen, const at::Tensor& rejected,
                                 double ridge);

/// Which kernel tells chosen from rejected best on held-out pairs, and what the embeddings are like.
struct KernelSelection {
  at::Tensor separation, variance, tightness, gap;  ///< scalars: pnd, pnav, tat, nag
  at::Tensor score, accuracy;                       ///< [4]: polynomial, rbf, mahalanobis, spectral
  Kernel kernel = Kernel::polynomial;
};
KernelSelection select_kernel(const at::Tensor& prompt, const at::Tensor& chosen, const at::Tensor& rejected,
                              const KernelParameters& parameters);

}  // namespace kullback
