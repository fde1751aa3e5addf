#pragma once

#include <string>
#include <vector>

#include "kullback/train/distillation.h"

namespace kullback {

/// Responses that a method keeps in its state, and so in checkpoints, under a name; none where nothing is kept.
std::vector<Response> stored_responses(const DistillationState& state, const std::string& name);
void store_responses(DistillationState& state, const std::string& name, const std::vector<Response>& responses);

}  // namespace kullback
