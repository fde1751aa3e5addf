#pragma once

#include <string>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/lm/model.h"

namespace kullback {

/// One comparison with what another program makes of a model.
struct GoldenFigure {
  std::string name;  ///< "logits", "left padding: loss", ...
  bool passed = true;
  double largest_difference = 0;  ///< |ours - expected| / max(1, |expected|), over all numbers
  double tolerance = 0;
  std::string at = {};  ///< where the largest difference is, or what went wrong
};

/// Everything that a golden file of an architecture says of `model` (which gets gradients, and whose adapter, if it has
/// one, is merged at the end): logits of a batch, of its rows alone and through a KV cache; loss; the norm of each
/// gradient; greedy tokens with a cache and without; padded batches; merged weights. `source` stands in messages. Throws
/// an Error when the file lacks a part or does not fit the model.
std::vector<GoldenFigure> golden_figures(const Json& golden, Model& model, const std::string& source);

}  // namespace kullback
