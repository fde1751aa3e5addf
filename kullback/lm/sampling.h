#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kullback {

/// How a row of logits becomes the law that the next token is drawn from. The chain, each link on the row that the one
/// before left: repetition, frequency and presence penalties, temperature, top-k, top-p, min-p, typical, epsilon, eta.
struct Sampling {
  enum class Ties {
    keep,      ///< all that equal the k-th largest stay
    lowest_id  ///< exactly k stay
  };
  double temperature = 1;  ///< >= 0; 0 takes the arg-max, the lowest id among equals
  int64_t top_k = 0;       ///< keep logits at least as large as the k-th largest; 0: off
  Ties ties = Ties::keep;  ///< of top-k
  double top_p = 1;        ///< keep a token if the mass before it is below p (Holtzman et al. 2020); 1: off
  double min_p = 0;        ///< keep probabilities of at least m times the largest (Nguyen et al. 2024); 0: off
  double typical = 1;      ///< locally typical sampling (Meister et al. 2023, arXiv 2202.00666); 1: off
  double epsilon = 0;      ///< keep probabilities of at least this (Hewitt et al. 2022, arXiv 2210.15191); 0: off
  double eta = 0;          ///< the same, less where the entropy is high; 0: off
  int64_t min_keep = 1;    ///< every filter but top-k leaves at least so many tokens
  double repetition_penalty = 1;  ///< > 0: of tokens that have occurred (Keskar et al. 2019, arXiv 1909.05858); 1: off
  double frequency_penalty = 0;   ///< taken from a token's logit for each time it has occurred
  double presence_penalty = 0;    ///< taken from the logit of a token that has occurred
};

/// Throws an Error naming the option that is out of range.
void validate(const Sampling& sampling);

/// A row of logits that filters change in place: a token that is removed gets -infinity, and never comes back.
using LogitRow = std::span<double>;

/// history: ids that have occurred, in the prompt and since; negative ones are padding.
void penalise(LogitRow row, std::span<const int32_t> history, const Sampling& sampling);
void scale_by_temperature(LogitRow row, double temperature);
void keep_top_k(LogitRow row, int64_t k, Sampling::Ties ties = Sampling::Ties::keep);
void keep_top_p(LogitRow row, double p, int64_t min_keep = 1);
void keep_min_p(LogitRow row, double m, int64_t min_keep = 1);
void keep_typical(LogitRow row, double mass, int64_t min_keep = 1);
void keep_epsilon(LogitRow row, double epsilon, int64_t min_keep = 1);
void keep_eta(LogitRow row, double epsilon, int64_t min_keep = 1);
/// The whole chain.
void filter(LogitRow row, std::span<const int32_t> history, const Sampling& sampling);

/// Natural logarithms of the row's softmax, -infinity where a token has been removed. Throws an Error when a logit is NaN
/// or +infinity, or none is above -infinity.
std::vector<double> log_softmax(std::span<const double> row);
std::vector<double> softmax(std::span<const double> row);

/// The largest logit's id, the lowest among equals. Errors as log_softmax.
int32_t arg_max(std::span<const double> row);

/// The first id whose cumulative probability exceeds `uniform`, a number in [0, 1); where rounding leaves none, the last
/// id of positive probability.
int32_t draw(std::span<const double> probabilities, double uniform);

/// The arg-max of log p_v - log(-log u_v): a draw of the row's law when the u_v are independent and uniform in (0, 1).
int32_t gumbel_draw(std::span<const double> row, std::span<const double> uniforms);

/// The tokens that can be drawn, with probabilities that sum to one.
struct NextTokenLaw {
  std::vector<int32_t> ids;  ///< ascending
  std::vector<double> probabilities;
};

/// The law after the whole chain. Errors as log_softmax.
NextTokenLaw next_token_law(std::span<const float> logits, const Sampling& sampling,
                            std::span<const int32_t> history = {});

/// The same draw from a law: the place in it.
size_t draw_place(const NextTokenLaw& law, double uniform);
int32_t draw(const NextTokenLaw& law, double uniform);

}  // namespace kullback
