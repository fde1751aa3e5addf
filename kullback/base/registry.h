#pragma once

#include <any>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/base/options.h"

namespace kullback {

/// What a method is for; each family but measurement has a command of its own (`kullback align`, `kullback distill`, …).
enum class Family { alignment, distillation, decoding, compression, merging, measurement };
std::string family_name(Family family);
const std::vector<Family>& families();

struct Paper {
  std::string title;
  std::string arxiv;  ///< "2305.18290"; empty if it is not there
  std::string venue;  ///< "NeurIPS 2023"; may be empty
  std::string text() const;
};

/// All that is known of a method. Its own file makes one and registers it; commands, help, docs and checks find it here.
struct Method {
  std::string name;
  Family family = Family::alignment;
  std::string summary;             ///< one line
  std::string formula;             ///< plain text, a line an equation
  std::string when;                ///< when to use it, and when not
  std::vector<Paper> papers;       ///< the method's own first
  std::vector<std::string> needs;  ///< in words: "a reference model", …
  std::shared_ptr<const OptionSet> options;
  std::any recipe;  ///< what the family's runner takes (train/recipe.h)
};

const std::vector<Method>& methods();                             ///< sorted by family, then name
const Method& find_method(std::string_view name);                 ///< Error with a suggestion if unknown
const Method& find_method(std::string_view name, Family family);  ///< Error too if it is of another family

/// A file-scope object of this type adds a method to the registry. Two of one name are a fault of ours.
struct Registered {
  explicit Registered(Method method);
};

/// A method's whole page as Markdown: what it is, the formula, when to use it, options, papers.
std::string explain(const Method& method);

}  // namespace kullback
