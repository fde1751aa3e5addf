#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kullback {

/// Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318): tokens drawn from
/// a draft's rows are accepted or replaced so that what is emitted follows the target's law exactly.

/// One round's outcome.
struct SpeculativeRound {
  int64_t accepted = 0;            ///< drafted tokens that were accepted, the first ones
  std::vector<double> final_law;   ///< [V]: what the last token is drawn from
  std::vector<int32_t> tokens;     ///< the accepted ones and the last one
  std::vector<double> acceptance;  ///< [gamma]: sum_v min(p, q) = 1 - TV(p, q) of each row
};

/// draft: [gamma][V]; target: [gamma + 1][V], probabilities; token i is accepted iff u_i q_i(x_i) < p_i(x_i).
SpeculativeRound speculative_round(std::span<const int32_t> drafted, const std::vector<std::vector<double>>& draft,
                                   const std::vector<std::vector<double>>& target,
                                   std::span<const double> accept_uniforms, double final_uniform);

/// max(p - q, 0), normed: the law after a refusal; p itself where nothing is left.
std::vector<double> residual_law(std::span<const double> target, std::span<const double> draft);
/// sum_v min(p_v, q_v).
double acceptance_rate(std::span<const double> target, std::span<const double> draft);
/// The first token's law: accepted drafts and the residual together. It is the target's.
std::vector<double> speculative_first_token_law(std::span<const double> target, std::span<const double> draft);
/// Mean number of tokens of a round when draft and target are Markov chains (rows [V][V] of probabilities by the last
/// token): 1 + sum_i P(the first i drafts are accepted).
double expected_round_length(const std::vector<std::vector<double>>& target,
                             const std::vector<std::vector<double>>& draft, size_t start, int64_t gamma);

}  // namespace kullback
