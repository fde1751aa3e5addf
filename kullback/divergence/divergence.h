#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kullback/divergence/generators.h"

namespace kullback {

struct RowDivergence;
namespace detail {
struct Definition;
}

/// A divergence between two laws, made by name: `divergence("kl")`, `divergence("js:0.3")`. A small value, cheap to copy.
///
/// For the f-divergences D_f(p||q) = sum_y q(y) f(p(y)/q(y)), natural logarithms, f(1) = 0: `kl` is KL(p||q), `reverse-kl`
/// is KL(q||p).
class Divergence {
 public:
  explicit Divergence(std::shared_ptr<const detail::Definition> definition) : definition_(std::move(definition)) {}

  /// The name with its parameter as `divergence()` takes it, such as "js:0.5".
  const std::string& name() const;
  /// What it is, in one line.
  const std::string& description() const;

  /// Whether it is an f-divergence; only those have a generator.
  bool has_generator() const;
  /// f, f', its limits and conjugate. Error for what is no f-divergence.
  const Generator& generator() const;

  /// D(policy || reference) of rows.
  RowDivergence from_policy() const;
  /// D(reference || policy) of rows.
  RowDivergence from_reference() const;

  const detail::Definition& definition() const { return *definition_; }

 private:
  std::shared_ptr<const detail::Definition> definition_;
};

/// The divergence of that name and parameter, such as "kl", "js:0.3", "renyi:2" or "bregman:squared". An Error, with a
/// suggestion, where there is none or the parameter is out of its range.
Divergence divergence(std::string_view name);

/// The f-divergence of a generator of the user's own. Error if f(1) is not 0.
Divergence divergence(std::string name, Generator generator);

/// A strictly convex function phi on [0, inf), for sum_y phi(p) - phi(q) - phi'(q) (p - q).
struct Potential {
  std::function<double(double)> value, derivative, second_derivative;
};

/// The Bregman divergence of a separable potential of the user's own.
Divergence bregman_divergence(std::string name, Potential potential);

/// Wasserstein-1 of laws on a line: `positions` [V] of the tokens, in any order. `divergence("wasserstein-1")` is the same
/// on 0, 1, 2, ...
Divergence line_divergence(std::vector<double> positions);

/// A name that `divergence()` knows.
struct DivergenceInfo {
  std::string name;
  std::vector<std::string> aliases;
  std::string parameter;      ///< what follows the colon; empty: nothing
  std::string default_value;  ///< taken where nothing follows the name
  std::string range;          ///< of the parameter, such as "in (0, 1)"
  std::string summary;
};

/// All of them, in the order of the documentation.
const std::vector<DivergenceInfo>& known_divergences();

/// Which of two rows comes first.
enum class Direction {
  from_policy,     ///< D(policy || reference)
  from_reference,  ///< D(reference || policy)
};

/// A divergence between two rows, with its direction.
struct RowDivergence {
  Divergence divergence;
  Direction direction = Direction::from_reference;
};

}  // namespace kullback
