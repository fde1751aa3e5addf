#pragma once

#include "kullback/train/distillation.h"
#include "kullback/train/preference.h"

namespace kullback {

/// Responses of two sources to the same prompts as a batch of preference pairs, with log-probabilities of their tokens under
/// the student, and under the teacher as reference where its rows are given.
PreferenceBatch response_pairs(const Responses& chosen, const Responses& rejected);

}  // namespace kullback
