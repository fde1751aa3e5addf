#pragma once

#include <vector>

#include "kullback/distill/minillm.h"

namespace kullback {

/// The part of a rollout that a step trains on, with `old_logps`, `rewards`, `weights` and `advantages` at each token. Where all
/// passes over the last rollout are done, a new one is drawn first.
std::vector<Response> minillm_responses(DistillationStep& step, const MinillmOptions& options);

/// What a new rollout was like: `reward` and `response_length` means, and `reverse_kl_estimate` a token on responses that the
/// student drew alone.
void minillm_figures(DistillationStep& step, Figures& figures, const MinillmOptions& options);

}  // namespace kullback
