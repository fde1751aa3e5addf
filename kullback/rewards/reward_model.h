#pragma once

#include <string>

#include "kullback/rewards/reward.h"

namespace kullback {

/// What a reward model says: the one score of a transformer with a classification head (Hugging Face's
/// ...ForSequenceClassification with num_labels 1, as TRL's reward trainer saves it), read at the last token of the conversation
/// as the model's chat template lays it out; without a template, of prompt and response end to end. Error naming the folder where
/// it is no such model.
Reward::Scores reward_model(const std::string& folder);

}  // namespace kullback
