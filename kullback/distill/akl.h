#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/distill/reduction.h"
#include "kullback/divergence/head.h"

namespace kullback {

/// Adaptive KL: forward and reverse KL of every token, weighted by how far the student is from the teacher on the head and
/// on the tail of the teacher's law. Wu et al. 2024, arXiv 2404.02657.
struct AklOptions {
  enum class HeadRule { below, reach };

  double mu = 0.5;  ///< mass of the head
  HeadRule head_rule =
      HeadRule::below;     ///< whether the token that crosses it is tail (the authors' code) or head (the paper)
  double temperature = 1;  ///< of both laws
  double kd_ratio = 1;     ///< weight of the divergence; the rest is cross-entropy on the labels
  Reduction reduction = Reduction::token_mean;
};

/// Which tokens are head: rows of logits [N,V] -> [N,V] bool. The likeliest token always is; of equal ones the lower id comes
/// first.
at::Tensor akl_head(const at::Tensor& teacher_logits, const AklOptions& options);

/// The loss, differentiable in the student, and its parts, detached; [B,T] ones are 0 where the mask is false.
struct AklLoss {
  at::Tensor loss;                    ///< scalar: (1 - kd_ratio) ce_loss + kd_ratio kd_loss
  at::Tensor kd_loss, ce_loss;        ///< scalars; ce_loss is undefined without labels
  at::Tensor gap_head, gap_tail;      ///< [B,T] sum |p - q| over the head and over the tail
  at::Tensor weight_forward;          ///< [B,T] of forward KL: gap_head / (gap_head + gap_tail), 1/2 where both are 0
  at::Tensor forward_kl, reverse_kl;  ///< [B,T] KL(teacher || student) and KL(student || teacher), nats
  at::Tensor per_token;               ///< [B,T] their weighted sum
};

/// rows: [B T] of student and teacher, row b T + t for token (b,t); labels [B,T] int64 or undefined; mask [B,T] bool. Where
/// the mask is false nothing is read. `tokens_in_step`, `sequences_in_step`: see token_weights.
AklLoss akl_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                 const AklOptions& options, double tokens_in_step = 0, double sequences_in_step = 0);

}  // namespace kullback
