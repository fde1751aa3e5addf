#include "kullback/measure/policy_figures.h"

#include "kullback/base/error.h"

namespace kullback {

Figures evaluation_names(const Figures& compared) {
  Figures figures;
  for (const auto& [name, mean] : compared) {
    if (name == "loss_b") continue;  // the reference's
    figures[name == "reverse-kl" ? "reverse_kl" : name == "loss_a" ? "loss" : name] = mean;
  }
  return figures;
}

std::vector<Figures> figures_on_pairs(const ComparedSide& policy, const ComparedSide& reference,
                                      const std::vector<PreferencePair>& pairs,
                                      const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<Example> responses;
  for (const PreferencePair& pair : pairs) {
    if (!pair.has_chosen || !pair.has_rejected)
      fail("line {}: one labelled response alone, where pairs of a chosen and a rejected one are wanted", pair.line);
    for (const Sequence* sequence : {&pair.chosen, &pair.rejected})
      responses.push_back({.line = pair.line, .sequence = *sequence, .prompt = {}, .text = {}});
  }
  const ModelComparison compared = compare_models(policy, reference, responses, progress);
  std::vector<Figures> rows;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Figures &chosen = compared.rows[2 * i], &rejected = compared.rows[2 * i + 1];
    if (chosen.empty() || rejected.empty()) continue;  // a response without a token says nothing
    const auto log_ratio = [](const Figures& row) { return row.at("loss_b").sum - row.at("loss_a").sum; };
    const double margin = log_ratio(chosen) - log_ratio(rejected);
    Figures row = chosen;
    add(row, rejected);
    row = evaluation_names(row);
    row["loss"] = chosen.at("loss_a");
    row["margin"] = {margin, 1};
    row["accuracy"] = {margin > 0 ? 1.0 : 0.0, 1};
    row["likelier"] = {chosen.at("loss_a").value() < rejected.at("loss_a").value() ? 1.0 : 0.0, 1};
    row["sequence_kl"] = {row.at("kl").sum, 2};
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kullback
