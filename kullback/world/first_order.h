#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "kullback/base/random.h"
#include "kullback/divergence/divergence.h"
#include "kullback/world/sequences.h"

namespace kullback {

/// The world in which claims about distillation are shown: a teacher that no student can be. Responses of four tokens out
/// of four, none of which ends them; the teacher has a row of logits ~ N(0, 2^2) after every prefix, the student one row
/// after every previous token and one at the start. All is float64 and every prefix is enumerated: P = 85.
struct FirstOrderWorld {
  SequenceSpace space = {.vocabulary = 4, .length = 4, .ends = false};
  at::Tensor teacher;  ///< [P,V] log-probabilities of the next token
  at::Tensor start;    ///< [V+1,V] logits of the untrained student ~ N(0, 0.5^2)
  at::Tensor
      previous;  ///< [P] int64: the student's row after each prefix; 0 at the start, 1 + the last token elsewhere

  /// Logits [P,V] after every prefix of a student's table [V+1,V], differentiable.
  at::Tensor rows(const at::Tensor& table) const;
};
FirstOrderWorld first_order_world(uint64_t seed);

/// How probable it is that a response begins with each prefix: rows of logits [P,V] -> [P], differentiable. They sum to the
/// length.
at::Tensor visits(const FirstOrderWorld& world, const at::Tensor& rows);

/// How probable each prefix with the token after it is among all tokens of a law's responses: rows of logits [P,V] -> [P,V],
/// which sum to 1.
at::Tensor token_law(const FirstOrderWorld& world, const at::Tensor& rows);

/// Tokens drawn from a law at the prefixes that it visits itself, as data of its responses has them.
struct DrawnTokens {
  at::Tensor prefixes, labels;  ///< [N] int64: the prefix before each token, and the token
};
/// rows: logits [P,V] of the law.
DrawnTokens drawn_tokens(const FirstOrderWorld& world, const at::Tensor& rows, int64_t count, RandomStream& stream);

/// The divergence of next-token laws at prefixes visited so often: sum over P of visits * D, a scalar differentiable in the
/// student's logits [P,V] alone. The student is the policy, the teacher the reference.
at::Tensor expected_divergence(const FirstOrderWorld& world, const RowDivergence& divergence,
                               const at::Tensor& student_rows, const at::Tensor& visits);

/// How far the student's law of responses is from the teacher's.
struct SequenceDistances {
  double forward_kl = 0;  ///< KL(teacher || student), nats
  double reverse_kl = 0;  ///< KL(student || teacher), nats
  double total_variation = 0;
};
SequenceDistances sequence_distances(const FirstOrderWorld& world, const at::Tensor& student_rows);

/// A loss of the student's logits [P,V], differentiable in them; its gradient is taken as exact. `step` counts from 0.
using StudentLoss = std::function<at::Tensor(const at::Tensor& student_rows, int64_t step)>;

/// Trains the student by Adam at the constant rate 0.05; gives back its logits [P,V].
at::Tensor train_student(const FirstOrderWorld& world, const StudentLoss& loss, int64_t steps = 1500);

/// Trains one student in each of the worlds of the seeds 0 to `seeds` - 1; means of their distances from the teacher.
SequenceDistances mean_distances(const std::function<StudentLoss(const FirstOrderWorld&)>& loss, int64_t seeds = 5,
                                 int64_t steps = 1500);

}  // namespace kullback
