// How the cases of pesf-kd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/pesf.h"

namespace kullback {
namespace {

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<PesfOptions>(c, "pesf-kd");
  const auto tensor = [&](const char* name) { return c.has(name) ? c.tensor(name) : at::Tensor(); };
  const PesfAdapter adapter{.w_direct = tensor("w_direct"),
                            .b_direct = tensor("b_direct"),
                            .w_down = tensor("w_down"),
                            .b_down = tensor("b_down"),
                            .w_up = tensor("w_up"),
                            .b_up = tensor("b_up")};
  const at::Tensor hidden = c.tensor("teacher_hidden").flatten(0, 1);
  Rows teacher;
  teacher.hidden = c.tensor("teacher_logits").to(at::kDouble).flatten(0, 1);
  const Rows adapted = pesf_adapted(teacher, hidden, adapter, o);
  const PesfLoss l = pesf_loss(fixture_rows(c, "student"), adapted, teacher, c.tensor("labels"), c.mask("mask"), o);
  return {{"loss", l.loss},
          {"ce_student", l.ce_student},
          {"kd", l.kd},
          {"ce_teacher", l.ce_teacher},
          {"sharpness_student", l.sharpness_student},
          {"sharpness_teacher", l.sharpness_teacher},
          {"sharpness_student_centred", l.sharpness_student_centred},
          {"sharpness_teacher_centred", l.sharpness_teacher_centred},
          {"adapted_teacher_logits", adapted.hidden.reshape(c.tensor("teacher_logits").sizes())}};
}

const RegisteredCheck check{"pesf-kd", "", loss_case};

}  // namespace
}  // namespace kullback
