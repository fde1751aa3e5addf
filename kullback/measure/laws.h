#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/divergence/gaussian.h"

namespace kullback {

/// How a list of numbers is meant.
enum class NumbersAs { probabilities, counts, logits };

/// A law over outcomes, named or not.
struct Outcomes {
  std::vector<std::string> names;  ///< empty: by position
  std::vector<double> numbers;
};

/// The concentrations of a Dirichlet law.
struct Dirichlet {
  std::vector<double> concentration;
};

using Law = std::variant<Outcomes, Gaussian, Dirichlet>;

struct PairOfLaws {
  Law p, q;
};

/// Reads both laws from one file, or one from each of two. JSON: [0.5, 0.5], {"a": 3, "b": 1},
/// {"mean": [..], "covariance": [[..]]} or "variance": [..], {"concentration": [..]}; one file holds {"p": .., "q": ..}. CSV:
/// a line an outcome, `number` or `name,number`; one file holds `name,p,q`. A first line that ends in no number is a
/// heading. Outcomes with names are matched by them; one that a file lacks has 0 there (logits: -inf). Error: file and line.
PairOfLaws read_laws(const std::vector<std::string>& files, NumbersAs as);

/// One divergence between two laws.
struct Measured {
  std::string name;
  std::string what;
  double value = 0;
};

/// The divergences of these names, or of `all`: each that is known between such laws, parameters at their defaults.
std::vector<Measured> measure(const PairOfLaws& laws, const std::vector<std::string>& names, NumbersAs as,
                              double smoothing = 0);

}  // namespace kullback
