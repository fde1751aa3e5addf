#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Sinkhorn distillation: the student's laws of a batch and the teacher's are two clouds of points, and the entropic cost of
/// moving one to the other is added to cross-entropy and KL. Cui et al. 2024, arXiv 2402.17110.
struct SinkdOptions {
  enum class Normalize { sum, rows };
  enum class Problem { batch, sequence };

  double temperature = 2;  ///< of the laws that are moved
  double epsilon = 0.1;    ///< entropic strength
  int64_t iterations = 20;
  double kl_weight = 0.9;        ///< weight of KL(teacher || student); the rest is cross-entropy
  double sinkhorn_weight = 0.8;  ///< of the cost, with normalize rows; the authors multiply its sum by 0.0008
  double kl_temperature = 1;
  Normalize normalize = Normalize::rows;  ///< rows: the cost is divided by the number of rows
  Problem rows = Problem::batch;          ///< one problem over all counted tokens, or one a sequence with costs added
  bool detach_plan = false;               ///< the gradient takes the plan for given
  int64_t max_rows = 256;                 ///< larger problems are cut into several of at most so many rows, costs added
};

struct SinkhornPlan {
  at::Tensor cost;  ///< [N,N] L1 distance of student row i and teacher row j
  at::Tensor plan;  ///< [N,N]: after `iterations` of rows scaled to 1, then columns
};
/// Rows of logits [N,V] each, temperature done; differentiable in the student's, through all iterations.
SinkhornPlan sinkhorn_plan(const at::Tensor& student_logits, const at::Tensor& teacher_logits,
                           const SinkdOptions& options);

/// The loss, differentiable in the student, and its parts, detached scalars.
struct SinkdLoss {
  at::Tensor
      loss;  ///< (1 - kl_weight) ce_loss + kl_weight forward_kl + sinkhorn_weight sinkhorn; without labels the last alone
  at::Tensor sinkhorn;             ///< the cost's sum, not yet divided by the rows; undefined where its weight is 0
  at::Tensor forward_kl, ce_loss;  ///< undefined without labels
};

/// rows: [B T] of student and teacher; labels [B,T] int64 or undefined; mask [B,T] bool. `tokens_in_step`: see token_weights.
/// A problem holds the logits of its rows, at most max_rows of them.
SinkdLoss sinkd_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                     const SinkdOptions& options, double tokens_in_step = 0);

}  // namespace kullback
