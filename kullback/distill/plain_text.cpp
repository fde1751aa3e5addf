#include "kullback/distill/plain_text.h"

#include <ATen/ATen.h>

#include "kullback/distill/kd.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;

PlainTextLoss plain_text_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                              double kd_ratio, double tokens_in_step) {
  const bool taught = teacher.hidden.defined();
  const KdOptions o{.divergence = KdOptions::Objective::forward_kl, .kd_ratio = kd_ratio};
  const KdLoss kd = kd_loss(student, taught ? teacher : student, labels, mask, o, tokens_in_step);
  PlainTextLoss result{.loss = kd.loss, .ce_loss = kd.ce_loss, .soft_loss = {}};
  if (!taught) return result;
  // -sum p ln q is the divergence and the teacher's entropy.
  const Tensor places = mask.reshape(-1).nonzero().squeeze(1);
  HeadRequest request;
  request.entropy = true;
  const Tensor weights = token_weights(mask, Reduction::token_mean, tokens_in_step).reshape(-1).index_select(0, places);
  const Tensor entropy = (weights * head_statistics(rows_at(teacher, places), request).entropy).sum().detach();
  result.soft_loss = kd.kd_loss + entropy;
  result.loss = kd.loss + kd_ratio * entropy;
  return result;
}

}  // namespace kullback
