#pragma once

#include "kullback/align/run.h"

namespace kullback {

/// A run of `kullback align` whose method draws responses and asks a reward, instead of learning from pairs: salsa.
RunResult run_reward_alignment(AlignJob job);

}  // namespace kullback
