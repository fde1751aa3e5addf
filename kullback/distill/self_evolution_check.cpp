// How the cases of self-evolution-kd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/self_evolution.h"

namespace kullback {
namespace {

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<SelfEvolutionOptions>(c, "self-evolution-kd");
  const Rows teacher = fixture_rows(c, "teacher");
  const at::Tensor labels = c.tensor("labels");
  const SelfEvolutionLoss l = self_evolution_loss(fixture_rows(c, "student"), teacher, labels, c.mask("mask"), o);
  return {{"loss", l.loss},
          {"difficulty", l.difficulty},
          {"threshold_value", l.threshold},
          {"hard", l.hard},
          {"alpha", l.alpha},
          {"kl_per_token", l.per_token},
          {"fraction_hard", l.fraction_hard},
          {"prior", wanted_law(teacher.hidden / o.temperature, labels.reshape(-1), o.lam)
                        .exp()
                        .reshape(c.tensor("teacher_logits").sizes())}};
}

const RegisteredCheck check{"self-evolution-kd", "", loss_case};

}  // namespace
}  // namespace kullback
