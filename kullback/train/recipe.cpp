#include "kullback/train/recipe.h"

namespace kullback {

std::vector<std::string> Needs::in_words() const {
  std::vector<std::string> words;
  words.emplace_back("log-probabilities of the responses under the policy");
  if (reference_logps)
    words.emplace_back(reference_without_prompt ? "those under a reference that does not see the prompt"
                                                : "those under a frozen reference");
  if (!divergences.empty()) words.emplace_back("the reference's full next-token distributions");
  return words;
}

}  // namespace kullback
