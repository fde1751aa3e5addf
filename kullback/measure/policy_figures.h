#pragma once

#include <functional>
#include <vector>

#include "kullback/measure/model_comparison.h"
#include "kullback/train/data.h"

namespace kullback {

/// What preference pairs say of a policy, whoever trained it, and how far it is from a reference on them. A row of figures a pair:
/// "likelier" (its chosen response has the higher mean log-probability a token), "margin" (ln policy/reference of the chosen
/// response less that of the rejected one, nats: DPO's reward margin at beta 1), "accuracy" (the margin is above 0), "loss"
/// (cross-entropy of the chosen response); "kl", "reverse_kl", "js", "tv", "chi2", "hellinger", "renyi:2" over the tokens of
/// both, policy first; "agreement"; and "sequence_kl", nats a response.
std::vector<Figures> figures_on_pairs(const ComparedSide& policy, const ComparedSide& reference,
                                      const std::vector<PreferencePair>& pairs,
                                      const std::function<void(int64_t, int64_t)>& progress = {});

/// The distances of one row of compare_models under the names of a run's evaluation.json: "reverse_kl" for "reverse-kl".
Figures evaluation_names(const Figures& compared);

}  // namespace kullback
