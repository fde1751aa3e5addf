#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/distill/reduction.h"
#include "kullback/divergence/head.h"

namespace kullback {

/// Knowledge distillation: the student's next-token law q is drawn to the teacher's p in a chosen divergence.
/// Hinton et al. 2015, arXiv 1503.02531; sequence level: Kim and Rush 2016, arXiv 1606.07947.
struct KdOptions {
  enum class Objective {
    forward_kl,
    reverse_kl,
    symmetric_kl,
    jeffreys,
    js,
    skew_kl,
    skew_reverse_kl,
    total_variation,
    squared_hellinger,
    pearson_chi2,
    neyman_chi2,
    alpha,
    triangular
  };
  enum class Source { data, teacher, student };

  Objective divergence = Objective::forward_kl;
  double temperature = 1;  ///< of both laws
  bool t_squared = false;  ///< times temperature squared, which keeps the gradient's size when it changes
  double kd_ratio = 1;     ///< weight of the divergence; the rest is cross-entropy on the labels
  Reduction reduction = Reduction::token_mean;
  bool detach_teacher = true;
  double reverse_weight = 0.5;   ///< symmetric_kl: weight of KL(student || teacher)
  double js_beta = 0.5;          ///< js: weight of the teacher in the mixture
  double skew_alpha = 0.1;       ///< skew_kl, skew_reverse_kl
  double alpha = 0.5;            ///< alpha: forward KL at 1, reverse KL at 0
  Source source = Source::data;  ///< where the responses come from
  int64_t beams = 5;             ///< teacher responses by beam search; 1: sampled
  bool interpolate = false;      ///< of the beams, the one most like the data's response, not the likeliest
};

/// The divergence D(teacher || student) that the options name.
Divergence kd_divergence(const KdOptions& options);

/// The loss and its parts. `loss` is differentiable in the student (and in the teacher unless detached).
struct KdLoss {
  at::Tensor loss;       ///< scalar: (1 - kd_ratio) ce_loss + kd_ratio kd_loss
  at::Tensor kd_loss;    ///< scalar, detached: the reduced divergence
  at::Tensor ce_loss;    ///< scalar, detached: the reduced cross-entropy; undefined without labels
  at::Tensor per_token;  ///< [B,T], detached: the divergence at each counted token, 0 elsewhere
};

/// rows: [B T] of student and teacher, row b T + t for token (b,t); labels [B,T] int64 or undefined; mask [B,T] bool. Where
/// the mask is false nothing is read. `tokens_in_step`, `sequences_in_step`, `weight` [B]: see token_weights. Nothing to count: loss 0,
/// gradient 0.
KdLoss kd_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
               const KdOptions& options, double tokens_in_step = 0, double sequences_in_step = 0,
               const at::Tensor& weight = {});

}  // namespace kullback
