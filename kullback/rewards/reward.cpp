#include "kullback/rewards/reward.h"

#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/rewards/reward_model.h"
#include "kullback/rewards/reward_program.h"
#include "kullback/rewards/text_rewards.h"

namespace kullback {
namespace {

struct Known {
  RewardInfo info;
  std::string unit;
  Reward::Scores (*make)(const std::string& parameter);
};

const std::vector<Known>& known() {
  static const std::vector<Known> all{
      {{"length", "UNIT", "tokens", "how long the response is, in tokens, words or characters"}, "", length_reward},
      {{"regex", "EXPRESSION", "", "1 where a regular expression (PCRE2) matches somewhere, else 0"}, "", regex_reward},
      {{"regex-count", "EXPRESSION", "", "how often a regular expression matches"}, "matches", regex_count_reward},
      {{"keywords", "WORDS", "",
        "share of these words or phrases (commas between them, or @FILE, one a line) that occur"},
       "",
       keywords_reward},
      {{"repetition", "N", "3",
        "less the share of runs of N words that stood there before: 0 is no repetition, -1 is all"},
       "",
       repetition_reward},
      {{"compression", "", "", "compressed size over size (deflate): small for a text that repeats itself"},
       "",
       compression_reward},
      {{"model", "FOLDER", "",
        "what a reward model says (a Hugging Face folder for sequence classification, one label)"},
       "",
       reward_model},
      {{"program", "COMMAND", "",
        "what a program says that reads {\"prompt\", \"response\"} and answers {\"reward\"}, a line each"},
       "",
       reward_program}};
  return all;
}

}  // namespace

Reward::Reward(std::string name, std::string unit, Scores scores)
    : name_(std::move(name)), unit_(std::move(unit)), scores_(std::move(scores)) {}

std::vector<double> Reward::operator()(std::span<const PromptedResponse> responses) const {
  std::vector<double> rewards = scores_(responses);
  if (rewards.size() != responses.size())
    fail("reward {}: {} numbers for {} responses", name_, rewards.size(), responses.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isfinite(rewards[i])) fail("reward {}: gives {} to response {}", name_, rewards[i], i + 1);
  }
  return rewards;
}

Reward reward(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string name(text.substr(0, colon));
  std::string parameter(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  std::vector<std::string> names;
  for (const Known& one : known()) {
    names.push_back(one.info.name);
    if (one.info.name != name) continue;
    if (one.info.parameter.empty() && !parameter.empty()) fail("reward {}: takes no parameter", name);
    if (parameter.empty()) parameter = one.info.default_value;
    if (!one.info.parameter.empty() && parameter.empty())
      fail("reward {}: what follows the colon is missing; it is written {}:{}", name, name, one.info.parameter);
    std::string whole = parameter.empty() ? name : name + ":" + parameter;
    return {std::move(whole), name == "length" ? parameter : one.unit, one.make(parameter)};
  }
  fail("there is no reward \"{}\"{}; there are {}", name, suggestion(name, names), listing(names));
}

const std::vector<RewardInfo>& known_rewards() {
  static const std::vector<RewardInfo> all = [] {
    std::vector<RewardInfo> infos;
    for (const Known& one : known()) infos.push_back(one.info);
    return infos;
  }();
  return all;
}

std::string reward_grammar_text() {
  std::vector<std::string> words;
  for (const RewardInfo& info : known_rewards())
    words.push_back(info.parameter.empty() ? info.name : info.name + ":" + info.parameter);
  return listing(words);
}

}  // namespace kullback
