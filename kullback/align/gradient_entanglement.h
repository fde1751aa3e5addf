#pragma once

#include <optional>

#include "kullback/train/preference.h"

namespace kullback {

/// Why chosen and rejected move together: a margin loss ties the change of one log-probability to the gradient of the other.
/// Yuan et al. 2024, arXiv 2410.13828.
struct EntanglementOptions {
  enum class Loss { dpo, rdpo, ipo, simpo, slic, cpo, rrhf, dpop, sppo, kto };
  Loss loss = Loss::dpo;
  double beta = 0.1;                  ///< > 0
  double length_alpha = 0.2;          ///< rdpo
  double tau = 0.1;                   ///< ipo, > 0
  double gamma = 0.5;                 ///< simpo
  double delta = 1;                   ///< slic
  std::optional<double> lambda = {};  ///< slic (0.1), cpo (1), rrhf (0), dpop (50)
  double lambda_w = 1, lambda_l = 1;  ///< kto
  double z0 = 0;                      ///< kto
  double step = 0.01;                 ///< eta of the step that is predicted, > 0
};

/// Both responses of each pair, each [B].
struct PairLogps {
  at::Tensor chosen, rejected;                      ///< summed log-probabilities l_w, l_l
  at::Tensor reference_chosen, reference_rejected;  ///< r_w, r_l
  at::Tensor chosen_length, rejected_length;        ///< n_w, n_l
};
/// The table of losses. [B], differentiable.
at::Tensor margin_loss(const PairLogps& pairs, const EntanglementOptions& options);

/// Inner products of the gradients g_w and g_l of l_w and l_l over some parameters, each [B].
struct PairGradients {
  at::Tensor inner, chosen_norm, rejected_norm;
};
PairGradients inner_products(const at::Tensor& chosen, const at::Tensor& rejected);  ///< of [B,...] each

/// What the next step does to each pair, to first order; each [B] unless said.
struct Entanglement {
  at::Tensor loss, cosine,
      condition;  ///< condition: inner / min(|g_w|^2, |g_l|^2); above 1 with equal weights: entangled
  at::Tensor chosen_weight, rejected_weight;                        ///< d_w = -dL/dl_w, d_l = dL/dl_l
  at::Tensor chosen_bound, rejected_bound;                          ///< d_w |g_w|^2, d_l |g_l|^2
  at::Tensor chosen_change, rejected_change;                        ///< of the step eta (d_w g_w - d_l g_l)
  at::Tensor normalised_chosen_change, normalised_rejected_change;  ///< of eta d_w (g_w / |g_w| - g_l / |g_l|)
};
Entanglement entanglement(const PairLogps& pairs, const PairGradients& gradients, const EntanglementOptions& options);

/// The first remedy as a loss: its gradient is that of the pairwise normalised step. [B]
at::Tensor normalised_loss(const PairLogps& pairs, const PairGradients& gradients, const EntanglementOptions& options);

/// The second: a gate a token, sigmoid of `gates` [B,T], with an L1 price lambda.
struct GatedLoss {
  at::Tensor loss;        ///< scalar
  at::Tensor margin, l1;  ///< [B]
};
GatedLoss gated_loss(const PreferenceBatch& batch, const at::Tensor& chosen_gates, const at::Tensor& rejected_gates,
                     double beta, double lambda);

}  // namespace kullback
