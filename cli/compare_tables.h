#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kullback/measure/model_comparison.h"
#include "kullback/report/page.h"

namespace kullback {

/// What was measured on samples of one side, of A or of B.
struct SampledSide {
  std::string from, other;                  ///< "A", "B"
  std::map<std::string, Interval> figures;  ///< of compare_on_samples(from, other), and "reward"
};

/// Best of n drawn from A, by a reward, estimated from the draws of each prompt.
struct MeasuredBestOfN {
  int64_t n = 0, draws = 0;
  double bound = 0;               ///< log n - (n - 1) / n
  Interval kl = {}, reward = {};  ///< KL(best of n || A), nats a response; its expected reward
};

/// Everything that a comparison found, as it is shown and written.
struct ComparisonReport {
  std::string a, b, data, reward;
  std::vector<Example> responses;
  ModelComparison comparison;
  std::map<std::string, Interval> figures;   ///< over all tokens of the given responses
  std::map<std::string, Interval> by_class;  ///< "kl word start", ...
  std::vector<SampledSide> sampled;
  std::optional<MeasuredBestOfN> best;
  uint64_t seed = 0;
};

/// Figures of all tokens, of tokens by class, of samples, of best of n, and the tokens that differ most (at most `tokens`).
std::vector<Table> comparison_tables(const ComparisonReport& report, const Model& model, int64_t tokens);
/// The responses with the largest KL a token, each token shaded by its own.
std::vector<ShadedText> most_different(const ComparisonReport& report, const Model& model, size_t count);
Page comparison_page(const ComparisonReport& report, const Model& model, std::vector<Table> tables);
Plot comparison_by_place(const ComparisonReport& report);
Json comparison_json(const ComparisonReport& report);

}  // namespace kullback
