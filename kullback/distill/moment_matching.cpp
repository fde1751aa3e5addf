#include "kullback/distill/moment_matching.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;
using O = MomentMatchingOptions;

Tensor best_response(const Tensor& student_logits, const Tensor& teacher_logits, double bound) {
  return bound * (at::softmax(teacher_logits, 1) - at::softmax(student_logits, 1)).sign();
}

namespace {

/// A side's counted tokens, and what each of them weighs in the mean over rows.
struct Counted {
  Rows student, teacher, critic;
  Tensor labels, places;  // [C]
  Tensor discount;        // [B,T] gamma^(counted tokens before), 0 where not counted
  Tensor share;           // [B,1] 1 / rows, and 1 / length with normalize length
};

Counted counted(const MomentSide& side, const O& o, double rows_in_step) {
  Counted c;
  c.places = side.mask.reshape(-1).nonzero().squeeze(1);
  c.student = rows_at(side.student, c.places);
  if (side.teacher.hidden.defined()) c.teacher = rows_at(side.teacher, c.places);
  if (side.critic.hidden.defined()) c.critic = rows_at(side.critic, c.places);
  c.labels = side.labels.reshape(-1).index_select(0, c.places);
  const Tensor mask = side.mask.to(at::kDouble);
  c.discount = at::pow(o.gamma, mask.cumsum(1) - mask) * mask;
  const double rows = rows_in_step > 0 ? rows_in_step : std::max<double>(1, static_cast<double>(mask.size(0)));
  c.share = o.normalize == O::Normalize::length ? 1 / (rows * mask.sum(1, true).clamp_min(1))
                                                : at::full({mask.size(0), 1}, 1 / rows, at::kDouble);
  return c;
}

Tensor bounded(const Tensor& raw, const O& o) { return o.critic_bound > 0 ? o.critic_bound * at::tanh(raw) : raw; }

/// The critic's values at a block of rows, of the student's logits there; without gradient.
Tensor values_at(const Counted& c, const Tensor& student, int64_t first, const O& o) {
  if (o.critic == O::Critic::learned) return bounded(row_logits(c.critic, first, student.size(0)), o);
  return best_response(student.detach(), row_logits(c.teacher, first, student.size(0)), o.critic_bound);
}

/// [n,5]: ln pi of the label, the student's and the teacher's expected value, the label's value, total variation (the last
/// three without gradient; 0 where there is no teacher).
Tensor statistics(const Counted& c, const Tensor& student, int64_t first, const O& o) {
  const Tensor f = values_at(c, student, first, o), labels = c.labels.narrow(0, first, student.size(0)).unsqueeze(1);
  const Tensor log_q = at::log_softmax(student, 1), q = log_q.exp();
  Tensor of_teacher = at::zeros({student.size(0)}, f.options()), variation = of_teacher;
  if (c.teacher.hidden.defined()) {
    const Tensor p = at::softmax(row_logits(c.teacher, first, student.size(0)), 1);
    of_teacher = (p * f).sum(1), variation = 0.5 * (p - q.detach()).abs().sum(1);
  }
  return at::stack(
      {log_q.gather(1, labels).squeeze(1), (q * f).sum(1), of_teacher, f.gather(1, labels).squeeze(1), variation}, 1);
}

/// Sums over this and the later places of each row: [B,T] -> [B,T].
Tensor from_here_on(const Tensor& values) { return values.flip({1}).cumsum(1).flip({1}); }

struct Walked {
  Counted c;
  Tensor logp, of_student, of_teacher, of_label, variation;  // [B,T], 0 where not counted
};

Walked walk(const MomentSide& side, const O& o, double rows_in_step) {
  Walked w{.c = counted(side, o, rows_in_step),
           .logp = {},
           .of_student = {},
           .of_teacher = {},
           .of_label = {},
           .variation = {}};
  const Tensor values =
      row_block_values(w.c.student, w.c.student,
                       [&](const Tensor& s, const Tensor&, int64_t first) { return statistics(w.c, s, first, o); })
          .to(at::kDouble)
          .reshape({-1, 5});
  const auto column = [&](int64_t i) { return at_places(values.select(1, i).contiguous(), w.c.places, side.mask); };
  w.logp = column(0), w.of_student = column(1), w.of_teacher = column(2), w.of_label = column(3),
  w.variation = column(4);
  return w;
}

/// sum of weights of ln pi and of the student's expected value, with its gradient: [B,T] each.
Tensor weighted(const Walked& w, const Tensor& of_logp, const Tensor& of_expected, const O& o) {
  const auto at = [&](const Tensor& t) { return t.reshape(-1).index_select(0, w.c.places); };
  const Tensor none = at::zeros_like(w.c.places, at::kDouble);
  return row_block_loss(
             w.c.student, w.c.student,
             [&](const Tensor& s, const Tensor&, int64_t first) { return statistics(w.c, s, first, o); },
             at::stack({at(of_logp), at(of_expected), none, none, none}, 1))
      .loss;
}

MomentPart part(const Walked& w, const MomentSide& side, const Tensor& delta) {
  MomentPart result;
  result.per_token = delta;
  result.gap = (w.c.share * delta).sum();
  if (side.teacher.hidden.defined()) result.total_variation = w.variation;
  return result;
}

}  // namespace

MomentPart moment_on_policy(const MomentSide& side, const O& o, double rows_in_step) {
  if (!side.teacher.hidden.defined()) fail("moment matching on the student's responses needs the teacher's rows there");
  const Walked w = walk(side, o, rows_in_step);
  const Tensor &g = w.c.discount, counted_here = side.mask.to(at::kDouble);
  const bool expected = o.on_estimator == O::Estimator::expected;
  const Tensor delta = g * (w.of_teacher - (expected ? w.of_student : w.of_label));
  MomentPart result = part(w, side, delta);
  Tensor returns = from_here_on(delta);
  if (expected)
    returns = returns - delta;  // its own place has its direct gradient
  else if (!o.baseline)
    returns = returns - g * w.of_teacher;
  result.returns = returns * counted_here;
  const Tensor direct = expected ? g * w.c.share : at::zeros_like(g);  // [B,T]
  result.loss = weighted(w, w.c.share * result.returns, -direct, o) + (direct * w.of_teacher).sum();
  return result;
}

MomentPart moment_off_policy(const MomentSide& side, const O& o, double rows_in_step) {
  const Walked w = walk(side, o, rows_in_step);
  const bool expected = o.off_estimator == O::Estimator::expected;
  if (!side.teacher.hidden.defined() && (expected || o.critic == O::Critic::best_response))
    fail("option --off-estimator: expected values and best responses need the teacher's rows at its responses");
  const Tensor weights = w.c.discount * w.c.share, of_teacher = expected ? w.of_teacher : w.of_label;
  MomentPart result = part(w, side, w.c.discount * (of_teacher - w.of_student));
  result.loss = weighted(w, at::zeros_like(weights), -weights, o) + (weights * of_teacher).sum();
  return result;
}

Tensor moment_gap(const MomentSide& side, bool on_policy, const O& o, double rows_in_step) {
  const Counted c = counted(side, o, rows_in_step);
  const bool expected = (on_policy ? o.on_estimator : o.off_estimator) == O::Estimator::expected;
  const Tensor weights = (c.discount * c.share).reshape(-1).index_select(0, c.places);
  return row_block_loss(
             c.critic, c.student,
             [&](const Tensor& raw, const Tensor& student, int64_t first) {
               const Tensor f = bounded(raw, o), labels = c.labels.narrow(0, first, raw.size(0)).unsqueeze(1);
               const Tensor of_label = f.gather(1, labels).squeeze(1);
               const auto mean = [&](const Tensor& logits) { return (at::softmax(logits, 1) * f).sum(1); };
               const auto of_teacher = [&] { return mean(row_logits(c.teacher, first, raw.size(0))); };
               if (on_policy) return of_teacher() - (expected ? mean(student) : of_label);
               return (expected ? of_teacher() : of_label) - mean(student);
             },
             weights)
      .loss;
}

}  // namespace kullback
