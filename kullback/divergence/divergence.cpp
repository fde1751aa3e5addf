#include "kullback/divergence/divergence.h"

#include "kullback/base/error.h"

namespace kullback {
namespace detail {
struct Definition {
  std::string name;
};
}  // namespace detail

const std::string& Divergence::name() const { return definition_->name; }
RowDivergence Divergence::from_policy() const { return {*this, Direction::from_policy}; }
RowDivergence Divergence::from_reference() const { return {*this, Direction::from_reference}; }

Divergence divergence(std::string_view name) {
  if (name != "kl" && name != "reverse-kl") fail("no divergence is named '{}'", name);
  return Divergence(std::make_shared<detail::Definition>(detail::Definition{std::string(name)}));
}

}  // namespace kullback
