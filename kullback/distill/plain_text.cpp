#include "kullback/distill/plain_text.h"

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/kd.h"

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
  const CountedTokens c = counted_tokens(student, teacher, {}, mask, Reduction::token_mean, tokens_in_step);
  HeadRequest request;
  request.entropy = true;
  const Tensor entropy = (c.weights * head_statistics(c.teacher, request).entropy).sum().detach();
  result.soft_loss = kd.kd_loss + entropy;
  result.loss = kd.loss + kd_ratio * entropy;
  return result;
}

}  // namespace kullback
