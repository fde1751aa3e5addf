#pragma once

#include <string>
#include <vector>

#include "kullback/divergence/head.h"
#include "kullback/lm/transformer.h"
#include "kullback/train/figures.h"
#include "kullback/train/response_batch.h"

namespace kullback {

/// The frozen model that the policy is compared with: another transformer, or the policy's own with its adapters off.
struct Reference {
  const Transformer* model = nullptr;
  AdapterUse use = AdapterUse::off;
};

/// The reference's rows at a batch's counted tokens, for the head; without gradient.
Rows reference_rows(const Reference& reference, const ResponseBatch& batch);

/// What is exactly known of how far rows of the policy are from those of the reference: figures named `kl`, `reverse_kl`,
/// `tv`, `chi2` and `entropy` (of the policy).
const std::vector<std::string>& distance_names();
/// [M] each, in the order of distance_names; without gradient.
std::vector<at::Tensor> exact_distances(const Rows& policy, const Rows& reference);

/// Adds one response's distances to a row of figures: a mean over tokens under each name, and under sequence_NAME the sum
/// over the response. `distances`: [n] each, of the response's tokens.
void add_distances(const std::vector<at::Tensor>& distances, Figures& row);

/// The sum and the number of values.
Mean total(const at::Tensor& values);

}  // namespace kullback
