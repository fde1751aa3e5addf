#include "kullback/distill/counted.h"

#include <ATen/ATen.h>

#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;

CountedTokens counted_tokens(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                             Reduction reduction, double tokens_in_step, double sequences_in_step,
                             const Tensor& weight) {
  const Tensor places = mask.reshape(-1).nonzero().squeeze(1);
  const auto gathered = [&](const Tensor& t) { return t.defined() ? t.reshape(-1).index_select(0, places) : t; };
  return {.student = rows_at(student, places),
          .teacher = rows_at(teacher, places),
          .labels = gathered(labels),
          .places = places,
          .weights = gathered(token_weights(mask, reduction, tokens_in_step, sequences_in_step, weight))};
}

HeadLoss cross_entropy(const Rows& rows, const Tensor& labels, const Tensor& weights) {
  HeadRequest request;
  request.labels = labels;
  request.logps = true;
  HeadStatistics of;
  of.logps = -weights;
  return head_loss(rows, request, of);
}

Rows at_temperature(Rows rows, double temperature) {
  rows.temperature *= temperature;
  return rows;
}

Tensor weighted_sum(const Tensor& weights, const Tensor& values) {
  return at::where(weights == 0, 0.0, weights * values).sum();
}

}  // namespace kullback
