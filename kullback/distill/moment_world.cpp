#include "kullback/distill/moment_world.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

Tensor prefix_discounts(const SequenceSpace& space, double gamma) {
  std::vector<Tensor> all;
  for (int64_t t = 0; t < space.length; ++t)
    all.push_back(at::full({space.prefixes_of(t)}, std::pow(gamma, static_cast<double>(t)), at::kDouble));
  return at::cat(all);
}

namespace {

/// Q(s,a) = reward + gamma sum_b policy(b|s') Q(s',b), from the longest prefixes up. [P,V]
Tensor action_values(const SequenceSpace& space, const Tensor& policy, const Tensor& rewards, double gamma) {
  std::vector<Tensor> levels(static_cast<size_t>(space.length));
  Tensor next;  // values of the prefixes one token longer
  int64_t begin = space.prefixes();
  for (int64_t t = space.length - 1; t >= 0; --t) {
    const int64_t count = space.prefixes_of(t);
    begin -= count;
    Tensor values = rewards.narrow(0, begin, count);
    if (next.defined()) values = values + gamma * next.reshape(values.sizes());
    levels[static_cast<size_t>(t)] = values;
    next = (policy.narrow(0, begin, count).exp() * values).sum(1);
  }
  return at::cat(levels);
}

}  // namespace

MomentWorld moment_world(const SequenceSpace& space, const Tensor& teacher, const Tensor& student,
                         const Tensor& rewards, double gamma) {
  MomentWorld w;
  const Tensor discounts = prefix_discounts(space, gamma);
  const auto reach = [&](const Tensor& rows) { return prefix_logps(space, rows.unsqueeze(0))[0].exp() * discounts; };
  const Tensor p = teacher.exp(), q = student.exp(), of_teacher = reach(teacher), of_student = reach(student);  // [P]
  w.teacher_return = (of_teacher * (p * rewards).sum(1)).sum();
  w.student_return = (of_student * (q * rewards).sum(1)).sum();
  w.teacher_values = action_values(space, teacher, rewards, gamma);
  w.student_values = action_values(space, student, rewards, gamma);
  w.off_gap = (of_teacher * ((p - q) * w.student_values).sum(1)).sum();
  w.on_gap = (of_student * ((p - q) * w.teacher_values).sum(1)).sum();
  const Tensor variation = 0.5 * (p - q).abs().sum(1);
  const Tensor largest = at::maximum(w.teacher_values.abs().max(), w.student_values.abs().max());
  w.bound_off = 2 * largest * (of_teacher * variation).sum();
  w.bound_on = 2 * largest * (of_student * variation).sum();
  return w;
}

}  // namespace kullback
