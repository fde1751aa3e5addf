// Rewards by name, on answers that are read from standard input, a JSON object {"prompt", "response"} a line.
//   build/examples/reward model:my-reward-model < answers.jsonl
#include <iostream>

#include <fmt/format.h>
#include <kullback/rewards/reward.h>
#include <nlohmann/json.hpp>

using namespace kullback;

int main(int count, char** words) {
  std::vector<PromptedResponse> answers;
  if (count < 2) {
    answers = {{.prompt = {{"user", "Is ice cold?"}}, .response = "Yes."},
               {.prompt = {{"user", "Is ice cold?"}}, .response = "Well, well, well: it depends, it depends."}};
  } else {
    for (std::string line; std::getline(std::cin, line);) {
      const auto row = nlohmann::json::parse(line);
      answers.push_back({.prompt = {{"user", row.at("prompt")}}, .response = row.at("response")});
    }
  }
  const std::vector<std::string> wanted = count < 2
                                              ? std::vector<std::string>{"length:words", "repetition:1", "regex:^Yes"}
                                              : std::vector<std::string>(words + 1, words + count);
  for (const std::string& name : wanted) {
    const Reward one = reward(name);
    for (const double value : one(answers)) fmt::print("{} {:.6f} {}\n", one.name(), value, one.unit());
  }
}
