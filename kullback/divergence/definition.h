#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "kullback/divergence/divergence.h"

namespace kullback::detail {

/// D(p||q) from ln p and ln q [V] (normalised; -inf allowed) in plain float64. `of_p` and `of_q`, when not empty, receive
/// p dD/dp and q dD/dq; a coordinate of no mass gets 0.
using PlainRow = std::function<double(std::span<const double> log_p, std::span<const double> log_q,
                                      std::span<double> of_p, std::span<double> of_q)>;

/// What a Divergence holds. Rows go through the vector code where there is a term, else through `plain`.
struct Definition {
  std::string name;
  std::string family;  // the name without its parameter; empty for the user's own
  double parameter = 0;
  std::string description;
  std::optional<Generator> generator;
  std::optional<Term> from_reference, from_policy;
  PlainRow plain;

  const std::optional<Term>& term(Direction direction) const {
    return direction == Direction::from_reference ? from_reference : from_policy;
  }
};

PlainRow plain_generator(Generator generator);
PlainRow plain_renyi(double alpha, double scale);  // scale ln(sum p^alpha q^(1 - alpha)) / (alpha - 1)
PlainRow plain_cauchy_schwarz();
PlainRow plain_density_power(double beta);
PlainRow plain_gamma(double gamma);
PlainRow plain_bregman(Potential potential);
PlainRow plain_itakura_saito();
PlainRow plain_line(std::vector<double> positions);  // empty: 0, 1, 2, ...

/// The value of a term from its sums, limits included; +inf where the mathematics says so. Never negative.
double term_value(const Term& term, const TermSums& sums);

}  // namespace kullback::detail
