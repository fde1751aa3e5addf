// How the cases of uld's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/uld.h"

namespace kullback {
namespace {

CheckOutputs loss_case(CheckCase& c) {
  Json given = c.options();
  for (const char* flag : {"skip_student_last", "skip_teacher_last"}) {
    if (given.contains(flag)) given[flag] = given[flag] != 0 && given[flag] != false;
  }
  UldOptions o{.skip_student_last = false};  // true in training
  find_method("uld").options->assign(&o, given, c.where());
  const UldLoss l = uld_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.tensor("labels"),
                             c.mask("student_mask"), c.mask("teacher_mask"), o);
  return {{"loss", l.loss}, {"ce", l.ce}, {"uld", l.uld}, {"uld_per_token", l.uld_per_token}, {"pairs", l.pairs}};
}

const RegisteredCheck check{"uld", "", loss_case};

}  // namespace
}  // namespace kullback
