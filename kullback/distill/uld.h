#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/train/distillation.h"

namespace kullback {

/// Universal logit distillation: cross-entropy on the teacher's text and the distance of sorted next-token laws, which needs no
/// map between two vocabularies. Boizard et al. 2024, arXiv 2402.12030.
struct UldOptions {
  double ce_weight = 1;
  double distil_weight = 1.5;
  double student_temperature = 1, teacher_temperature = 1;
  bool skip_student_last = true;  ///< leave out the last row: an end token that the teacher's text does not have
  bool skip_teacher_last = false;
  int64_t top_m = 0;  ///< compare so many of the likeliest, and the two masses left; 0: all
};

/// The distance of rows: sum over ranks of |p_(v) - q_(v)|, the shorter law with zeros beyond its end; in [0, 2]. Of equal
/// probabilities the smaller id comes first. student [n,V], teacher [n,V'] logits -> [n], differentiable in the student.
at::Tensor sorted_distance(const at::Tensor& student, const at::Tensor& teacher, int64_t top_m = 0);

/// The loss and its parts. `loss` is differentiable in the student.
struct UldLoss {
  at::Tensor loss;           ///< scalar: ce_weight ce + distil_weight uld
  at::Tensor ce;             ///< scalar, detached: mean over all counted tokens of -ln softmax(student)[label]
  at::Tensor uld;            ///< scalar, detached: mean over sequences of the mean over pairs of rows
  at::Tensor uld_per_token;  ///< [B,T], detached: the distance at the student's paired rows, 0 elsewhere
  at::Tensor pairs;          ///< [B] int64: paired rows; a sequence without any counts as 0 and stays in the mean
};
/// student: [B T] rows with labels and mask [B,T]; teacher: [B T'] rows with teacher_mask [B,T'], of its own tokens of the same
/// text. The i-th counted row of one is paired with the i-th of the other.
UldLoss uld_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                 const at::Tensor& teacher_mask, const UldOptions& options, double tokens_in_step = 0,
                 double sequences_in_step = 0);

}  // namespace kullback
