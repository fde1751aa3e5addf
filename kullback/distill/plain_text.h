#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// What a batch of plain text adds to a loss, so that the student does not forget how to write.
struct PlainTextLoss {
  at::Tensor loss;       ///< scalar, differentiable in the student: (1 - kd_ratio) ce_loss + kd_ratio soft_loss
  at::Tensor ce_loss;    ///< scalar, detached: mean over tokens of -ln q(label)
  at::Tensor soft_loss;  ///< scalar, detached: mean over tokens of -sum p ln q; undefined without a teacher
};

/// rows: [B T]; labels [B,T] int64; mask [B,T] bool. Without a teacher (its hidden states undefined) kd_ratio has to be 0.
PlainTextLoss plain_text_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels,
                              const at::Tensor& mask, double kd_ratio, double tokens_in_step = 0);

}  // namespace kullback
