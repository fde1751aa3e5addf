#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/world/sequences.h"

namespace kullback {

/// Returns of two policies where everything can be enumerated, and the two ways to write their difference. Rows [P,V] of
/// log-probabilities, rewards [P,V] of saying a token after a prefix, discount gamma a token.
struct MomentWorld {
  at::Tensor teacher_return, student_return;  ///< scalars; differentiable in the policies
  at::Tensor teacher_values, student_values;  ///< [P,V] action values
  at::Tensor
      off_gap;  ///< over the teacher's visits: the student's value of the token less its expectation under the student
  at::Tensor on_gap;  ///< over the student's visits: the teacher's expected value less that of the token
  at::Tensor bound_off,
      bound_on;  ///< 2 C times the discounted total variation over those visits, C the largest |value|
};
MomentWorld moment_world(const SequenceSpace& space, const at::Tensor& teacher, const at::Tensor& student,
                         const at::Tensor& rewards, double gamma);

/// gamma^t of each prefix of t tokens, [P].
at::Tensor prefix_discounts(const SequenceSpace& space, double gamma);

}  // namespace kullback
