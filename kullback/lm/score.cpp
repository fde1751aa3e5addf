#include "kullback/lm/score.h"

#include <ATen/ATen.h>

#include "kullback/divergence/head.h"

namespace kullback {
namespace {

template <class T>
std::vector<T> slice(const at::Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  const at::Tensor part = tensor.narrow(0, first, count).to(at::kCPU, type).contiguous();
  const T* data = part.const_data_ptr<T>();
  return std::vector<T>(data, data + part.numel());
}

}  // namespace

at::Tensor next_tokens(const Ragged& batch) {
  at::Tensor labels = at::full_like(batch.ids, -100);
  const int64_t tokens = batch.ids.size(0);
  if (tokens > 1) labels.narrow(0, 0, tokens - 1).copy_(batch.ids.narrow(0, 1, tokens - 1));
  int64_t end = 0;
  for (const int64_t length : batch.lengths) labels[(end += length) - 1] = -100;
  return labels;
}

std::vector<SequenceScores> score(const Transformer& model, const std::vector<std::vector<int32_t>>& sequences,
                                  int64_t top_k, AdapterUse use) {
  const at::NoGradGuard no_grad;
  const Ragged batch = ragged(sequences);
  HeadRequest request;
  request.labels = next_tokens(batch);
  request.logps = request.logsumexp = request.entropy = true;
  request.top_k = top_k;
  const HeadStatistics statistics = head_statistics(model.head_rows(model.hidden(batch, use)), request);

  std::vector<SequenceScores> result;
  int64_t first = 0;
  for (const int64_t length : batch.lengths) {
    SequenceScores scores;
    scores.logps = slice<double>(statistics.logps, first, length - 1, at::kDouble);
    scores.entropy = slice<double>(statistics.entropy, first, length, at::kDouble);
    scores.logsumexp = slice<double>(statistics.logsumexp, first, length, at::kDouble);
    scores.top_k = top_k;
    if (top_k > 0) {
      scores.top_ids = slice<int32_t>(statistics.top_ids, first, length, at::kInt);
      scores.top_logps = slice<double>(statistics.top_logps, first, length, at::kDouble);
    }
    result.push_back(std::move(scores));
    first += length;
  }
  return result;
}

}  // namespace kullback
