#pragma once

#include <string>
#include <vector>

#include "kullback/measure/model_comparison.h"
#include "kullback/rewards/reward.h"

namespace kullback {

/// The options of data that is only measured on: nothing is trained, so that nothing is held out.
const Options<DataOptions>& measured_data_options();

/// Whether the rows of a JSONL file are preference pairs.
bool holds_pairs(const std::string& path);

/// The data's responses; of preference pairs the chosen ones.
SupervisedData responses_of(const DataOptions& data, const Model& model);

/// drawn_responses with a progress bar.
std::vector<std::vector<Example>> drawn_with_progress(const Model& model, AdapterUse use,
                                                      const std::vector<Example>& examples, const DrawOptions& options);

/// The reward of each drawn response, prompt by prompt.
std::vector<std::vector<double>> judged(const Reward& reward, const std::vector<std::vector<Example>>& drawn);

Mean mean_of(const std::vector<double>& values);

}  // namespace kullback
