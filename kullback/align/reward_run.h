#pragma once

#include "kullback/align/run.h"

namespace kullback {

/// check_method of such a method.
void check_reward_method(const AlignJob& job);

/// A run of `kullback align` whose method draws responses and asks a reward, instead of learning from pairs: salsa.
/// Its job has been through check_reward_method.
RunResult run_reward_alignment(AlignJob job);

}  // namespace kullback
