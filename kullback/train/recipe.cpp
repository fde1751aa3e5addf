#include "kullback/train/recipe.h"

namespace kullback {

bool MovingReference::now(int64_t step, int64_t steps) const {
  if (every > 0) return step % every == 0;
  // Part k of K ends after step floor(steps k / K); the end of the run is no update.
  return step < steps && step * parts / steps != (step - 1) * parts / steps;
}

std::vector<std::string> Needs::in_words() const {
  std::vector<std::string> words;
  words.emplace_back("log-probabilities of the responses under the policy");
  if (reference_logps)
    words.emplace_back(reference_without_prompt ? "those under a reference that does not see the prompt"
                       : moving_reference       ? "those under a reference that follows the policy"
                                                : "those under a frozen reference");
  if (!divergences.empty()) words.emplace_back("the reference's full next-token distributions");
  if (hidden) words.emplace_back("the last hidden states of both models");
  if (mismatched != 0) words.emplace_back("log-probabilities of responses to other prompts than their own");
  return words;
}

}  // namespace kullback
