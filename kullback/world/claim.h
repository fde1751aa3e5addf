#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/report/plot.h"
#include "kullback/report/table.h"

namespace kullback {

/// One thing that a claim asserts: a number and the side of a limit where it has to be.
struct Assertion {
  std::string what;
  double value = 0;
  enum class Must { be_at_most, be_at_least } must = Must::be_at_most;
  double limit = 0;
  bool holds() const;  ///< false for NaN
};
Assertion at_most(std::string what, double value, double limit);
Assertion at_least(std::string what, double value, double limit);

struct ClaimResult {
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<Assertion> assertions;
  bool passed() const;  ///< something is asserted, and all of it holds
};

/// A published statement about a method and the experiment that shows it. Seeds are fixed.
struct Claim {
  std::string name;
  std::string method;      ///< whose claim it is
  std::string statement;   ///< what is shown, in a sentence
  std::string paper_says;  ///< what the source says, with its numbers
  std::string baseline;    ///< what stands in for the method where the claim has to fail
  /// The experiment: with the method, or with the baseline in its place.
  std::function<ClaimResult(bool with_baseline)> run;
};

const std::vector<Claim>& claims();  ///< by method, then name
/// Claims of that name, or all of the method of that name. Error with a suggestion if there is none.
std::vector<Claim> find_claims(std::string_view name);

/// A file-scope object of this type adds a claim.
struct RegisteredClaim {
  explicit RegisteredClaim(Claim claim);
};

}  // namespace kullback
