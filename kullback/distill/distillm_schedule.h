#pragma once

#include <vector>

#include "kullback/distill/distillm.h"

namespace kullback {

/// phi, the probability of a step that does not train on data, after a validation loss: it rises by threshold_step where the
/// loss is at least loss_eps above the last one that counted.
struct AdaptiveThreshold {
  double threshold = 0;
  double previous = 0;  ///< validation loss before training, or at the last rise
  void observe(double loss, const DistillmOptions& options);
};

/// What a step trains on.
enum class DistillmAction { data, fresh, replay };

/// lambda: phi (1 - t/T), phi/2 or phi t/T at step t, from 1, of T.
double fresh_probability(double threshold, int64_t step, int64_t steps, const DistillmOptions& options);

/// fresh: r < lambda, or r < phi and the buffer is not full; replay: else, r < phi; data: otherwise. r is uniform in [0,1), one a step.
DistillmAction distillm_action(double r, double threshold, int64_t step, int64_t steps, int64_t buffered,
                               const DistillmOptions& options);

/// The responses that a step trains on: the data's, fresh ones of the student, or some of the buffer, which the state holds.
std::vector<Response> distillm_responses(DistillationStep& step, const DistillmOptions& options);
/// phi, and which of these the step was.
void distillm_figures(DistillationStep& step, Figures& figures, const DistillmOptions& options);
/// phi after a validation loss.
void distillm_observe(DistillationStep& step, double loss, const DistillmOptions& options);

}  // namespace kullback
