#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kullback/divergence/head.h"
#include "kullback/train/method_builder.h"
#include "kullback/train/preference.h"

namespace kullback {

/// A reference that follows the policy: after each `every`-th step it becomes weight * policy + (1 - weight) * reference.
struct MovingReference {
  double weight = 1;  ///< of the policy, in (0, 1]
  int64_t every = 0;  ///< steps; 0: see `parts`
  int64_t parts = 1;  ///< where `every` is 0: the run is cut into so many equal parts, with an update between them
  bool now(int64_t step, int64_t steps) const;  ///< whether an update follows this step (from 1) of so many
};

/// What a recipe needs besides the policy's log-probabilities of the labels. The trainer provides this and nothing more.
struct Needs {
  bool reference_logps = false;           ///< log-probabilities of the labels under the reference
  bool reference_without_prompt = false;  ///< … with the prompt left out: log p(response)
  std::vector<RowDivergence> divergences =
      {};                    ///< between the policy's and the reference's rows, at every response token
  int64_t uniforms = 0;      ///< sets of uniform numbers, one a token, new at every visit
  bool unpaired = false;     ///< takes single labelled responses too
  bool hidden = false;       ///< both models' hidden states at every response token
  int64_t hidden_layer = 0;  ///< after which block (from 1); 0: the last ones, after the final norm
  int64_t hidden_width = 0;  ///< of the only states that the recipe can read; 0: of any
  int64_t samples =
      0;  ///< own samples of each pair, where they can be drawn (the exact world), for the chosen response
  int64_t mismatched = 0;  ///< each row's prompt with the response so many rows on; 0: none
  std::optional<MovingReference> moving_reference = {};  ///< else it is frozen

  bool reference() const { return reference_logps || hidden || !divergences.empty(); }
  std::vector<std::string> in_words() const;
};

/// A loss on preference pairs, its options' type erased: what `kullback align` runs.
struct PreferenceRecipe {
  std::function<Needs(const void* options)> needs;
  std::function<void(const void* options)> validate;  ///< throws an Error if options contradict each other
  std::function<PreferenceLoss(const PreferenceBatch&, const void* options)> loss;
};

/// Puts a preference method together from a struct of options and a loss function; converts to what `Registered` takes.
template <class O>
class PreferenceMethod : public MethodBuilder<PreferenceMethod<O>, O> {
 public:
  explicit PreferenceMethod(std::string name)
      : MethodBuilder<PreferenceMethod<O>, O>(std::move(name), Family::alignment) {
    recipe_.needs = [](const void*) { return Needs{.reference_logps = true, .divergences = {}}; };
    recipe_.validate = [](const void*) {};
  }
  PreferenceMethod& needs(std::function<Needs(const O&)> f) {
    return recipe_.needs = this->untyped(std::move(f)), *this;
  }
  PreferenceMethod& validate(std::function<void(const O&)> f) {
    return recipe_.validate = this->untyped(std::move(f)), *this;
  }
  PreferenceMethod& loss(std::function<PreferenceLoss(const PreferenceBatch&, const O&)> f) {
    return recipe_.loss = this->untyped(std::move(f)), *this;
  }

  operator Method() const { return this->built(recipe_.needs(std::make_shared<O>().get()).in_words(), recipe_); }

 private:
  PreferenceRecipe recipe_;
};

template <class O>
PreferenceMethod<O> preference_method(std::string name) {
  return PreferenceMethod<O>(std::move(name));
}

}  // namespace kullback
