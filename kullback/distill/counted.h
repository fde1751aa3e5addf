#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/distill/reduction.h"
#include "kullback/divergence/head.h"

namespace kullback {

/// What a batch of responses says that counts: C tokens, gathered.
struct CountedTokens {
  Rows student, teacher;  ///< C rows each
  at::Tensor labels;      ///< [C] int64; undefined without labels
  at::Tensor places;      ///< [C] int64: b T + t
  at::Tensor weights;     ///< [C] float64: of each token in the reduced loss
};

/// rows: [B T] of both models, row b T + t for token (b,t); labels [B,T] int64 or undefined; mask [B,T] bool. For
/// `tokens_in_step`, `sequences_in_step` and `weight` see token_weights.
CountedTokens counted_tokens(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                             Reduction reduction = Reduction::token_mean, double tokens_in_step = 0,
                             double sequences_in_step = 0, const at::Tensor& weight = {});

/// sum of weights * -ln q(label), labels and weights [N]; `statistics.logps` holds ln q. Nothing is read where no weight is.
HeadLoss cross_entropy(const Rows& rows, const at::Tensor& labels, const at::Tensor& weights);

/// The same rows with logits divided by this temperature too.
Rows at_temperature(Rows rows, double temperature);

/// weights * values summed, [N] each; a weight of 0 takes its value out, infinite or not.
at::Tensor weighted_sum(const at::Tensor& weights, const at::Tensor& values);

}  // namespace kullback
