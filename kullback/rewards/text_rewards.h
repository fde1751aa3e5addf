#pragma once

#include <string>

#include "kullback/rewards/reward.h"

namespace kullback {

// Rewards that look at the response's text alone. Each takes its parameter as it is written after the colon, and is an Error
// where that does not do. Words are what stands between white space; `reward()` finds them by name.

/// "tokens" (Error where a response's are not known), "words" or "characters" (code points).
Reward::Scores length_reward(const std::string& unit);

/// 1 where the expression has a match that is not empty, else 0; how many such matches there are, none overlapping.
Reward::Scores regex_reward(const std::string& expression);
Reward::Scores regex_count_reward(const std::string& expression);

/// Share of the words or phrases that occur, as whole words, in upper or lower case: "please,thank you" or "@FILE", which has
/// one a line.
Reward::Scores keywords_reward(const std::string& words);

/// -(runs of n words that stood in the response before) / (runs of n words): in (-1, 0]. 0 for fewer than n words.
Reward::Scores repetition_reward(const std::string& n);

/// Bytes of the response compressed (raw deflate, level 9) over its bytes; 0 for an empty response.
Reward::Scores compression_reward(const std::string& nothing);

}  // namespace kullback
