#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kullback {

/// How a row of logits becomes the law that the next token is drawn from: temperature, then top-k, top-p and min-p,
/// each on the row that the one before left.
struct Sampling {
  double temperature = 1;  ///< >= 0; 0 takes the arg-max, the lowest id among equals
  int64_t top_k = 0;       ///< keep logits at least as large as the k-th largest; 0: off
  double top_p = 1;        ///< keep a token if the mass of those before it is below p (Holtzman et al. 2020); 1: off
  double min_p = 0;        ///< keep probabilities of at least m times the largest (Nguyen et al. 2024); 0: off
};

/// Throws an Error naming the option that is out of range.
void validate(const Sampling& sampling);

/// The tokens that can be drawn, with probabilities that sum to one.
struct NextTokenLaw {
  std::vector<int32_t> ids;  ///< ascending
  std::vector<double> probabilities;
};

/// Throws an Error when a logit is NaN or none is above -infinity.
NextTokenLaw next_token_law(std::span<const float> logits, const Sampling& sampling);

/// The first token, in the order of ids, whose cumulative probability exceeds `uniform`, a number in [0, 1).
int32_t draw(const NextTokenLaw& law, double uniform);

}  // namespace kullback
