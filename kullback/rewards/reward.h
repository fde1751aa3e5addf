#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/text/chat_template.h"

namespace kullback {

/// A response to a prompt, as rewards see it.
struct PromptedResponse {
  std::vector<Message> prompt = {};  ///< the conversation before the response; may be empty
  std::string response = {};
  int64_t tokens = -1;  ///< of the response, its end token included; -1: not known
};

/// What is wanted of responses: a number each, more being better. Made by name with a parameter after a colon, as divergences
/// are: reward("length"), reward("regex:^Yes"), reward("model:my-reward-model/"). A value, cheap to copy; copies share what it
/// runs.
class Reward {
 public:
  using Scores = std::function<std::vector<double>(std::span<const PromptedResponse>)>;
  Reward(std::string name, std::string unit, Scores scores);

  const std::string& name() const { return name_; }
  /// "tokens", "matches"; empty for pure numbers.
  const std::string& unit() const { return unit_; }
  /// A finite number a response. Error naming the reward where there is none, or a reward model or program fails.
  std::vector<double> operator()(std::span<const PromptedResponse> responses) const;

 private:
  std::string name_, unit_;
  Scores scores_;
};

/// The reward of that name and parameter. An Error, with a suggestion, where there is none or the parameter does not do.
Reward reward(std::string_view text);

/// A name that `reward()` knows.
struct RewardInfo {
  std::string name;
  std::string parameter;      ///< what follows the colon; empty: nothing
  std::string default_value;  ///< taken where nothing follows the name; empty: there must be a parameter, if it has one
  std::string summary;
};
const std::vector<RewardInfo>& known_rewards();

/// "length:UNIT, regex:EXPRESSION, ...", for help.
std::string reward_grammar_text();

}  // namespace kullback
