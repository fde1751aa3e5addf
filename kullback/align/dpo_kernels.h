#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kullback/align/kernels.h"
#include "kullback/divergence/divergence.h"
#include "kullback/train/preference.h"

namespace kullback {

/// DPO with a kernel of embeddings in its margin and a choice of divergences. Das et al. 2025, arXiv 2501.03271.
struct DpoKernelsOptions {
  enum class Kind { kl, js, renyi, bhattacharyya, hellinger, wasserstein, wasserstein_line, f };
  enum class Generator { reverse_kl, chi2, tv, jeffreys };
  enum class Link { linear, logsigmoid };
  enum class Margin { policy, reference };
  enum class Positions { last, mean };
  enum class Embedding { frozen, policy };
  Kernel kernel = Kernel::rbf;
  double sigma = 1, c = 1, degree = 2;            ///< > 0
  std::vector<double> lambdas = {}, alphas = {};  ///< of the spectral kernel; none: 1 and 1, for hmk 1, 0.5 and 1, 0.1
  Kind divergence = Kind::kl;
  double order = 1.01;  ///< renyi, > 0
  Generator f = Generator::reverse_kl;
  double kappa = 1, gamma = 1, alpha = 1;  ///< of the margin, of the kernel in it, of the divergence; >= 0
  Link link = Link::linear;
  Margin margin = Margin::policy;
  Positions positions = Positions::last;
  Embedding embedding = Embedding::frozen;
  double ridge = 0.01;  ///< of mahalanobis, > 0
};

/// A divergence of rows by the streaming head and the factor that makes it the paper's. `vocabulary`: tokens on the line.
/// Error for `wasserstein`, which needs whole rows (transport_cost).
struct RowPenalty {
  RowDivergence divergence;
  double factor = 1;
};
RowPenalty row_penalty(const DpoKernelsOptions& options, int64_t vocabulary);
/// A divergence at each place [B,T] to one of each response [B]; 0 for an empty one.
at::Tensor over_positions(const at::Tensor& values, const at::Tensor& mask, const DpoKernelsOptions& options);

KernelParameters kernel_parameters(const DpoKernelsOptions& options);

/// Embeddings [B,D] of prompt, chosen and rejected response.
struct PairEmbeddings {
  at::Tensor prompt, chosen, rejected;
};
/// `penalty`: divergence of each pair's chosen response [B]. Parts: `logits` = `hybrid`, `prob_term`, `kernel_term`,
/// `divergence` [B].
PreferenceLoss dpo_kernels_loss(const PreferenceBatch& batch, const PairEmbeddings& embeddings,
                                const KernelParameters& parameters, const at::Tensor& penalty,
                                const DpoKernelsOptions& options);
/// The same with embeddings from the batch's hidden states and the head's divergence.
PreferenceLoss dpo_kernels_loss(const PreferenceBatch& batch, const DpoKernelsOptions& options);

/// Which divergence suits rows [N,V] of logits, by their overlap, drift and tails.
struct DivergenceSelection {
  at::Tensor overlap, drift, kurtosis;  ///< scalars
  std::string divergence;
};
DivergenceSelection select_divergence(const at::Tensor& policy_logits, const at::Tensor& reference_logits);

/// How heavy-tailed a spectrum is: the exponent of a power law fitted from the best place on (Clauset et al. 2009).
struct Spectrum {
  double distance = 1, exponent = 0, from = 0, weighted_exponent = 0;  ///< distance: Kolmogorov-Smirnov
  int64_t tail = 0;                                                    ///< eigenvalues in it
};
Spectrum spectrum_exponent(const at::Tensor& eigenvalues, int64_t least_tail);

}  // namespace kullback
