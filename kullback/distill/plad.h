#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/train/distillation.h"
#include "kullback/train/preference.h"

namespace kullback {

/// PLaD: the teacher's response is taken as preferred to the student's own, and a hinge on the student's likelihoods of the two
/// makes likelihood rank with quality; the teacher's logits are never seen. Zhang et al. 2024, arXiv 2406.02886.
struct PladOptions {
  enum class LossType { rank, margin };

  LossType loss_type = LossType::rank;
  double beta = 1;                    ///< rank: the gap that is wanted, nats; margin: the same for a unit of score
  bool length_normalise = false;      ///< compare mean log-probabilities of a token, not sums
  double reg_weight = 0;              ///< weight of -ln q(teacher's response)
  bool filter_by_score = false;       ///< leave out pairs whose scores say otherwise
  double temperature = 1, top_p = 1;  ///< of both models' responses
};

/// The loss and its parts. `loss` is differentiable in the student's log-probabilities.
struct PladLoss {
  at::Tensor loss;              ///< scalar: calibration_loss + reg_weight regulariser
  at::Tensor calibration_loss;  ///< scalar, detached: mean over pairs of max(0, margin - gap)
  at::Tensor regulariser;       ///< scalar, detached: mean over pairs of -ln q(chosen)
  at::Tensor margin, gap;       ///< [B], detached: wanted and actual ln q(chosen) - ln q(rejected)
  at::Tensor active_fraction;   ///< scalar: share of pairs whose gap is too small
  at::Tensor ranking_accuracy;  ///< scalar: share of pairs with a gap above 0
};
/// chosen: the teacher's responses, rejected: the student's. scores [B] for `margin`, else undefined.
PladLoss plad_loss(const PreferenceBatch& batch, const PladOptions& options, const at::Tensor& chosen_scores = {},
                   const at::Tensor& rejected_scores = {});

/// What becomes of a pair: "kept", or why it is left out: "empty", "identical" or "score".
std::string plad_verdict(const std::vector<int32_t>& chosen, const std::vector<int32_t>& rejected, double chosen_score,
                         double rejected_score, const PladOptions& options);

}  // namespace kullback
