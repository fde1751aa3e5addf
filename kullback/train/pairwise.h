#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/train/preference.h"

namespace kullback {

/// Sums over a response's counted tokens, each [B].
struct Score {
  at::Tensor policy, reference;  ///< of log-probabilities; the reference's are 0 where the side has none
  at::Tensor length;             ///< counted tokens

  at::Tensor log_ratio() const;       ///< policy - reference
  at::Tensor mean_log_ratio() const;  ///< the same a token; 0 for an empty response
  Score a_token() const;              ///< both sums divided by the length; 0 for an empty response
};
/// `token_weight`: [B,T] or scalar, times each token's log-probability; undefined: 1. Tokens that both models forbid are
/// left out.
Score score(const Side& side, const at::Tensor& token_weight = {});

/// The `count` [B] counted places of each row with the smallest numbers, ties to the first; all of them where there are no
/// more. [B,T] uniforms and mask -> [B,T] bool.
at::Tensor smallest(const at::Tensor& uniforms, const at::Tensor& mask, const at::Tensor& count);

/// -log sigmoid(z), the labels assumed flipped at a rate (conservative DPO, Mitchell 2023). Elementwise.
at::Tensor logistic_loss(const at::Tensor& z, double flipped = 0);
/// max(0, margin - z), SLiC's (Zhao et al. 2023, arXiv 2305.10425). No gradient at z = margin. Elementwise.
at::Tensor hinge_loss(const at::Tensor& z, double margin = 1);
at::Tensor hinge_loss(const at::Tensor& z, const at::Tensor& margin);

/// (d - 1/(2 beta))^2, IPO's of a difference of log-ratios (Azar et al. 2023, arXiv 2310.12036). Elementwise.
at::Tensor ipo_loss(const at::Tensor& difference, double beta);

/// Supervised loss of the chosen responses a token, scalar. Over the batches of a step it adds up to that of the step.
at::Tensor supervised_loss(const PreferenceBatch& batch);

/// Puts together what every pairwise loss gives back. losses, rewards, logits: [B]; of these the rewards may carry a graph.
PreferenceLoss pairwise_loss(const PreferenceBatch& batch, const at::Tensor& losses, const at::Tensor& chosen_rewards,
                             const at::Tensor& rejected_rewards, const at::Tensor& logits);

}  // namespace kullback
