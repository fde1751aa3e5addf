#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "kullback/distill/kd.h"
#include "kullback/train/distillation.h"

namespace kullback {

/// DistiLLM: KL to a mixture of teacher and student, whose gradient is bounded, on a schedule that turns to the student's own
/// responses only when validation asks for it and uses each of them again. Ko et al. 2024, arXiv 2402.03898.
struct DistillmOptions {
  enum class Skew { skew_kl, skew_reverse_kl };
  enum class Replay { decreasing, constant, increasing };

  Skew divergence = Skew::skew_kl;
  double skew_alpha = 0.1;  ///< share in the mixture of the divergence's first law
  double temperature = 1;   ///< of both laws
  double kd_ratio = 1;      ///< weight of the divergence; the rest is cross-entropy on the labels
  double lm_coef = 1;       ///< weight of the cross-entropy on plain text
  Reduction reduction = Reduction::token_mean;
  double init_threshold = 0;  ///< phi before the first validation
  double loss_eps = 0.1;      ///< how much the validation loss may rise before phi does
  double threshold_step = 0.1;
  int64_t capacity = 1000;  ///< responses that the buffer holds
  Replay replay_ratio = Replay::decreasing;
  double gen_temperature = 1, gen_top_p = 1;  ///< of the student's responses
  int64_t gen_top_k = 0;
};

KdOptions distillm_divergence(const DistillmOptions& options);

/// The loss and its parts. `loss` is differentiable in the student's rows, those of the plain text too.
struct DistillmLoss {
  at::Tensor loss;           ///< scalar: (1 - kd_ratio) ce_loss + kd_ratio kd_loss + lm_coef pretrain_loss
  at::Tensor kd_loss;        ///< scalar, detached
  at::Tensor ce_loss;        ///< scalar, detached; undefined without labels
  at::Tensor pretrain_loss;  ///< scalar, detached; undefined without plain text
  at::Tensor per_token;      ///< [B,T], detached
};

/// responses: rows, labels (undefined where kd_ratio is 1) and mask. text: a batch of plain text, or none.
DistillmLoss distillm_loss(const Responses& responses, const Responses& text, const DistillmOptions& options);

/// -sum p ln m, which the authors print for skew_kl: the divergence and the teacher's entropy, token mean. For skew_reverse_kl
/// the divergence itself.
at::Tensor cross_entropy_form(const Responses& responses, const DistillmOptions& options);

/// The largest p/m (skew_reverse_kl: q/m) of all counted tokens and of the whole vocabulary, which never exceeds 1/skew_alpha.
at::Tensor largest_ratio(const Responses& responses, const DistillmOptions& options);

}  // namespace kullback
