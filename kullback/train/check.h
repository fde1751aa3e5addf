#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/base/json.h"
#include "kullback/train/preference.h"

namespace kullback {

/// One case of a golden fixture: named inputs, options, and the numbers that an independent oracle computed from them.
class CheckCase {
 public:
  CheckCase(Json json, std::string where);

  const std::string& name() const { return name_; }
  const std::string& op() const { return op_; }
  const Json& options() const { return options_; }
  const Json& expected() const { return expected_; }
  double tolerance() const { return tolerance_; }
  const std::string& where() const { return where_; }  ///< file and case, for messages

  bool has(const std::string& input) const { return inputs_.contains(input); }
  const Json& input(const std::string& name) const;  ///< as it stands in the file; Error if it is not there
  /// An input as a tensor: int64 where all its numbers are integers, else float64; a number alone becomes a scalar. Requires
  /// a gradient, and is one and the same tensor on every call, when the case expects `grad_<name>`.
  at::Tensor tensor(const std::string& name);
  at::Tensor mask(const std::string& name);  ///< the same as booleans
  /// An option of the case, or `fallback`.
  template <class T>
  T option(const std::string& name, T fallback) const {
    return options_.contains(name) ? options_.at(name).template get<T>() : fallback;
  }

 private:
  std::string name_, op_, where_;
  Json options_, inputs_, expected_;
  double tolerance_ = 0;
  std::map<std::string, at::Tensor> tensors_;
};

/// Outputs by name. Where a name is expected and no number, the output's name is "key=name" and its tensor undefined; the same
/// for a list of names or of lists, whose JSON text stands in the name's place. Lists of lists of numbers may also be given as one tensor [n], one list after
/// another.
using CheckOutputs = std::map<std::string, at::Tensor>;

/// Computes a case's outputs by the code that training uses. Gradients are not its business: where the case expects
/// `grad_<input>`, the output `loss` is differentiated.
using CheckFunction = std::function<CheckOutputs(CheckCase&)>;

/// Names the function that computes cases of a method's fixture with this `op` (`""`: those without, and any not named).
/// Preference methods need none for their losses: their recipe is called as the trainer calls it.
struct RegisteredCheck {
  RegisteredCheck(const std::string& method, const std::string& op, CheckFunction function);
};

/// What a preference loss gives back, under the fixtures' names: its parts, the loss and the rewards' statistics.
CheckOutputs preference_outputs(const PreferenceLoss& loss);

/// A case's outcome.
struct CheckResult {
  std::string name;
  bool passed = false;
  double largest_difference = 0;  ///< |ours - expected| / max(1, |expected|), over all numbers
  double tolerance = 0;
  std::string at;  ///< where the largest difference is: "grad_policy_logps[3]"; or what went wrong
};

struct CheckReport {
  std::string file, kind;
  std::vector<CheckResult> results;
  bool passed() const;
};

/// Runs a fixture file. Kinds: a method's (`"method": …`), `tokenizer`, `lm`, `training-trace`, `architecture`. `model`: name or path of the
/// model where the kind needs one; empty: the one that the file names, or that lies beside it. Error: bad input.
CheckReport check_file(const std::filesystem::path& file, const std::string& model = "");

/// Compares named outputs with a case's expected ones; fills in gradients first.
CheckResult compare(CheckCase& check_case, CheckOutputs outputs);

}  // namespace kullback
