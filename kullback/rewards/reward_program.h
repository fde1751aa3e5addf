#pragma once

#include <string>

#include "kullback/rewards/reward.h"

namespace kullback {

/// What a program says, which is started once by a shell and asked as often as rewards are wanted. It reads a line a response,
/// {"prompt": ..., "response": "..."}, and writes a line each in the same order, {"reward": NUMBER}, other keys being passed
/// over; it must flush what it writes. The prompt is a text, or where it is a conversation a list of {"role", "content"}. The
/// end of its input tells it to end. Error naming the command where it ends before it has answered, answers anything else, or
/// says nothing for ten minutes.
Reward::Scores reward_program(const std::string& command);

}  // namespace kullback
