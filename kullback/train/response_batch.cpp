#include "kullback/train/response_batch.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

namespace kullback {

using at::Tensor;

ResponseBatch response_batch(std::span<const Sequence* const> sequences) {
  std::vector<int64_t> ids, rows, labels;
  ResponseBatch batch{.tokens = {.ids = {}, .lengths = {}, .caches = {}}, .rows = {}, .labels = {}, .counts = {}};
  for (const Sequence* sequence : sequences) {
    const auto begin = static_cast<int64_t>(ids.size()), length = static_cast<int64_t>(sequence->ids.size());
    ids.insert(ids.end(), sequence->ids.begin(), sequence->ids.end());
    const int64_t first = std::max<int64_t>(sequence->response_begin, 1);  // nothing predicts a sequence's first token
    for (int64_t t = first; t < length; ++t) {
      rows.push_back(begin + t - 1);
      labels.push_back(sequence->ids[static_cast<size_t>(t)]);
    }
    batch.tokens.lengths.push_back(length);
    batch.counts.push_back(std::max<int64_t>(length - first, 0));
  }
  batch.tokens.ids = at::tensor(ids, at::kLong);
  batch.rows = at::tensor(rows, at::kLong);
  batch.labels = at::tensor(labels, at::kLong);
  return batch;
}

Tensor padding_mask(std::span<const int64_t> counts) {
  const int64_t longest = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const Tensor lengths = at::tensor(std::vector<int64_t>(counts.begin(), counts.end()), at::kLong);
  return at::arange(longest, at::kLong).unsqueeze(0) < lengths.unsqueeze(1);
}

Tensor padded(const Tensor& values, std::span<const int64_t> counts) {
  const Tensor mask = padding_mask(counts);
  return at::zeros(mask.sizes(), values.options()).masked_scatter(mask, values);
}

Tensor response_hidden(const Transformer& model, const ResponseBatch& batch, AdapterUse use) {
  return model.hidden(batch.tokens, use).index_select(0, batch.rows);
}

ResponseStates response_states(const Transformer& model, const ResponseBatch& batch, AdapterUse use, int64_t layer) {
  std::vector<Tensor> outputs;  // the embeddings come first
  const Tensor last = model.hidden(batch.tokens, use, &outputs);
  return {last.index_select(0, batch.rows), outputs[static_cast<size_t>(layer)].index_select(0, batch.rows)};
}

}  // namespace kullback
