#pragma once

#include <optional>
#include <span>
#include <vector>

namespace kullback {

/// Contrastive decoding: what an expert believes more than an amateur does. Li et al. 2023, arXiv 2210.15097; with
/// `beta` the form of O'Brien and Lewis 2023, arXiv 2309.09117.
struct ContrastiveOptions {
  double alpha = 0.1;  ///< in (0, 1]: tokens of at least this share of the expert's largest probability stay
  std::optional<double> beta = {};  ///< (1 + beta) log p_e - beta log p_a in place of log p_e - log p_a
  double amateur_temperature = 1;   ///< > 0: of the amateur's row
  double amateur_floor = -100;      ///< log p_a is at least this
};

/// A row of scores for sampling, -infinity where a token is not plausible. Both rows: logits [V].
std::vector<double> contrastive_scores(std::span<const double> expert, std::span<const double> amateur,
                                       const ContrastiveOptions& options);

}  // namespace kullback
