// How the cases of sinkd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/sinkd.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<SinkdOptions>(c, "sinkd");
  const Rows student = fixture_rows(c, "student"), teacher = fixture_rows(c, "teacher");
  const Tensor mask = c.has("mask") ? c.mask("mask") : at::ones({1, student.hidden.size(0)}, at::kBool);
  const Tensor labels = c.has("labels") ? c.tensor("labels").reshape(mask.sizes()) : Tensor();
  const SinkdLoss l = sinkd_loss(student, teacher, labels, mask, o);
  const CountedTokens counted = counted_tokens(student, teacher, labels, mask);
  const SinkhornPlan p =
      sinkhorn_plan(counted.student.hidden / o.temperature, counted.teacher.hidden / o.temperature, o);
  CheckOutputs out{{"loss", l.loss},
                   {"sinkhorn", l.sinkhorn.defined() ? l.sinkhorn : (p.plan * p.cost).sum()},
                   {"cost", p.cost},
                   {"plan", p.plan}};
  if (labels.defined()) out["forward_kl"] = l.forward_kl, out["ce_loss"] = l.ce_loss;
  return out;
}

const RegisteredCheck check{"sinkd", "loss", loss_case};

}  // namespace
}  // namespace kullback
