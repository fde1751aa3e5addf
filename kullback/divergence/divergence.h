#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kullback {

struct RowDivergence;
namespace detail {
struct Definition;
}

/// A divergence between two laws, made by name: `divergence("kl")`, `divergence("js:0.3")`. A small value, cheap to copy.
///
/// For all f-divergences D_f(p||q) = sum_y q(y) f(p(y)/q(y)), natural logarithms, f(1) = 0: `kl` is KL(p||q), `reverse-kl`
/// is KL(q||p).
class Divergence {
 public:
  explicit Divergence(std::shared_ptr<const detail::Definition> definition) : definition_(std::move(definition)) {}

  /// The name with its parameter as `divergence()` takes it, such as "js:0.5".
  const std::string& name() const;

  /// D(policy || reference) of rows.
  RowDivergence from_policy() const;
  /// D(reference || policy) of rows.
  RowDivergence from_reference() const;

  const detail::Definition& definition() const { return *definition_; }

 private:
  std::shared_ptr<const detail::Definition> definition_;
};

/// The divergence of that name and parameter; an Error with a suggestion where there is none.
Divergence divergence(std::string_view name);

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
