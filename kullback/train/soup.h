#pragma once

#include <string>
#include <vector>

#include "kullback/lm/model.h"

namespace kullback {

/// A model as averages take it: a name, file or folder; or the folder of a PEFT adapter, merged into `base`, since the average
/// of two products b a is not the product of the averages. `option` names who asks, in Errors.
Model load_merged(const std::string& name, const std::string& base, const std::string& option);

/// sum_k weights[k] * model k, weight by weight, summed in float32; all else is the first one's. Tied weights are averaged once.
/// An Error names the model and the tensor where they are not of one layout, or where tokenizers differ. Wortsman et al. 2022,
/// arXiv 2203.05482.
Model soup(const std::vector<Model>& models, const std::vector<double>& weights);

}  // namespace kullback
