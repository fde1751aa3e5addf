#include "kullback/train/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace kullback {

using at::Tensor;

Rows reference_rows(const Reference& reference, const ResponseBatch& batch) {
  const at::NoGradGuard no_grad;
  return reference.model->head_rows(response_hidden(*reference.model, batch, reference.use));
}

const std::vector<std::string>& distance_names() {
  static const std::vector<std::string> names{"kl", "reverse_kl", "tv", "chi2", "entropy"};
  return names;
}

std::vector<Tensor> exact_distances(const Rows& policy, const Rows& reference) {
  const at::NoGradGuard no_grad;
  Rows frozen = policy;
  frozen.hidden = policy.hidden.detach();
  const HeadRequest request{.labels = {},
                            .entropy = true,
                            .scores = {},
                            .divergences = {divergence("kl").from_policy(), divergence("kl").from_reference(),
                                            divergence("tv").from_policy(), divergence("chi2").from_policy()}};
  HeadStatistics statistics = head_statistics(frozen, reference, request);
  statistics.divergences.push_back(statistics.entropy);
  return statistics.divergences;
}

void add_distances(const std::vector<Tensor>& distances, Figures& row) {
  for (size_t i = 0; i < distances.size(); ++i) {
    const std::string& name = distance_names()[i];
    const Mean mean = total(distances[i]);
    add(row, {{name, mean}, {"sequence_" + name, {mean.sum, 1}}});
  }
}

Mean total(const Tensor& values) { return {values.sum().item<double>(), static_cast<double>(values.numel())}; }

}  // namespace kullback
