#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kullback/base/registry.h"
#include "kullback/divergence/head.h"
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
      {};                 ///< between the policy's and the reference's rows, at every response token
  int64_t uniforms = 0;   ///< sets of uniform numbers, one a token, new at every visit
  bool unpaired = false;  ///< takes single labelled responses too
  bool hidden = false;    ///< both models' last hidden states at every response token
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
class PreferenceMethod {
 public:
  explicit PreferenceMethod(std::string name) {
    method_.name = std::move(name);
    method_.family = Family::alignment;
    recipe_.needs = [](const void*) { return Needs{.reference_logps = true, .divergences = {}}; };
    recipe_.validate = [](const void*) {};
  }
  PreferenceMethod& summary(std::string text) { return method_.summary = std::move(text), *this; }
  PreferenceMethod& formula(std::string text) { return method_.formula = std::move(text), *this; }
  PreferenceMethod& when(std::string text) { return method_.when = std::move(text), *this; }
  PreferenceMethod& paper(Paper paper) { return method_.papers.push_back(std::move(paper)), *this; }

  template <class Member, class Accepts>
  PreferenceMethod& option(std::string name, Member O::*member, Accepts accepts, std::string help,
                           std::string source = "") {
    return options_.option(std::move(name), member, std::move(accepts), std::move(help), std::move(source)), *this;
  }
  template <class Enum>
  PreferenceMethod& option(std::string name, Enum O::*member, Choices<Enum> choices, std::string help,
                           std::string source = "") {
    return options_.option(std::move(name), member, std::move(choices), std::move(help), std::move(source)), *this;
  }
  template <class Member>
  PreferenceMethod& option(std::string name, Member O::*member, const char* help, std::string source = "") {
    return options_.option(std::move(name), member, NumberRange{}, std::string(help), std::move(source)), *this;
  }
  PreferenceMethod& needs(std::function<Needs(const O&)> needs) {
    recipe_.needs = [needs = std::move(needs)](const void* o) { return needs(*static_cast<const O*>(o)); };
    return *this;
  }
  PreferenceMethod& validate(std::function<void(const O&)> check) {
    recipe_.validate = [check = std::move(check)](const void* o) { check(*static_cast<const O*>(o)); };
    return *this;
  }
  PreferenceMethod& loss(std::function<PreferenceLoss(const PreferenceBatch&, const O&)> loss) {
    recipe_.loss = [loss = std::move(loss)](const PreferenceBatch& b, const void* o) {
      return loss(b, *static_cast<const O*>(o));
    };
    return *this;
  }

  operator Method() const {
    Method method = method_;
    method.needs = recipe_.needs(std::make_shared<O>().get()).in_words();
    method.options = std::make_shared<Options<O>>(options_);
    method.recipe = recipe_;
    return method;
  }

 private:
  Method method_;
  Options<O> options_;
  PreferenceRecipe recipe_;
};

template <class O>
PreferenceMethod<O> preference_method(std::string name) {
  return PreferenceMethod<O>(std::move(name));
}

}  // namespace kullback
