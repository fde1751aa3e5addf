// How the cases of akl's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/akl.h"
#include "kullback/distill/counted.h"
#include "kullback/distill/fixture_rows.h"

namespace kullback {
namespace {

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<AklOptions>(c, "akl");
  const at::Tensor labels = c.has("labels") ? c.tensor("labels") : at::Tensor();
  const Rows teacher = fixture_rows(c, "teacher");
  const AklLoss l = akl_loss(fixture_rows(c, "student"), teacher, labels, c.mask("mask"), o);
  const at::Tensor head = akl_head(at_temperature(teacher, o.temperature).hidden, o);
  CheckOutputs out{{"loss", l.loss},
                   {"kd_loss", l.kd_loss},
                   {"head", head.reshape(c.tensor("teacher_logits").sizes())},
                   {"gap_head", l.gap_head},
                   {"gap_tail", l.gap_tail},
                   {"weight_forward", l.weight_forward},
                   {"forward_kl", l.forward_kl},
                   {"reverse_kl", l.reverse_kl},
                   {"per_token", l.per_token}};
  if (l.ce_loss.defined()) out["ce_loss"] = l.ce_loss;
  return out;
}

const RegisteredCheck check{"akl", "loss", loss_case};

}  // namespace
}  // namespace kullback
