#include "kullback/world/law.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/world/optimum.h"

namespace kullback {

using at::Tensor;

namespace {

template <class Draw>
Tensor filled(at::IntArrayRef sizes, const Draw& draw) {
  Tensor values = at::empty(sizes, at::kDouble);
  std::generate_n(values.mutable_data_ptr<double>(), values.numel(), draw);
  return values;
}

}  // namespace

Tensor normals(at::IntArrayRef sizes, RandomStream& stream) {
  return filled(sizes, [&] { return stream.normal(); });
}

Tensor uniforms(at::IntArrayRef sizes, RandomStream& stream) {
  return filled(sizes, [&] { return stream.uniform(); });
}

Tensor look_up(const Tensor& values, const Tensor& index) {
  return values.flatten().index_select(0, index.flatten()).reshape(index.sizes());
}

Tensor random_rows(const SequenceSpace& space, int64_t prompts, double deviation, RandomStream& stream) {
  const Tensor logits = deviation * normals({prompts, space.prefixes(), space.vocabulary}, stream);
  return log_probabilities(as_rows(logits)).reshape(logits.sizes());
}

Tensor log_probabilities(const Rows& rows) {
  // Each row once for every token as its label: what a loss on real models asks of the head, asked for all tokens.
  const int64_t count = rows.hidden.size(0);
  const int64_t vocabulary = rows.vocabulary > 0     ? rows.vocabulary
                             : rows.weight.defined() ? rows.weight.size(0)
                                                     : rows.hidden.size(1);
  Rows repeated = rows;
  repeated.hidden = rows.hidden.repeat_interleave(vocabulary, 0);
  return label_logps(repeated, at::arange(vocabulary, at::kLong).repeat({count})).reshape({count, vocabulary});
}

Rows as_rows(const Tensor& logps) {
  Rows rows;
  rows.hidden = logps.reshape({-1, logps.size(-1)});
  return rows;
}

Tensor response_divergence(const RowDivergence& divergence, const Tensor& policy_logps, const Tensor& reference_logps) {
  return row_divergence(divergence, policy_logps, reference_logps);
}

Tensor token_divergence(const SequenceSpace& space, const RowDivergence& divergence, const Tensor& policy_rows,
                        const Tensor& reference_rows) {
  const Tensor reach = prefix_logps(space, policy_rows);  // [C,P]
  return expectation(reach, response_divergence(divergence, policy_rows, reference_rows).reshape(reach.sizes()));
}

Tensor response_entropy(const Tensor& logps) {
  HeadRequest request;
  request.entropy = true;
  return head_statistics(as_rows(logps), request).entropy;
}

Tensor expected_length(const SequenceSpace& space, const Tensor& row_logps) {
  return prefix_logps(space, row_logps).exp().sum(-1);  // a token follows every prefix that is reached
}

Tensor token_marginals(const SequenceSpace& space, const Tensor& row_logps) {
  const Tensor joint = (prefix_logps(space, row_logps).unsqueeze(-1) + row_logps).exp();  // [C,P,V]
  std::vector<Tensor> places;
  int64_t begin = 0;
  for (int64_t t = 0; t < space.length; ++t) {
    const int64_t count = space.prefixes_of(t);
    places.push_back(joint.narrow(1, begin, count).sum(1));
    begin += count;
  }
  return at::stack(places, 1);
}

namespace {

/// One prompt's best of n. Groups of equal reward are taken from the worst up, so that sums of probabilities grow.
void best_of_n(const double* logps, const double* rewards, int64_t count, double n, double* result) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rewards[a] < rewards[b]; });
  double lower = 0;  // probability of a smaller reward
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double equal = 0;
    for (; end < order.size() && rewards[order[end]] == rewards[order[begin]]; ++end)
      equal += std::exp(logps[order[end]]);
    // ln of ((lower + equal)^n - lower^n) / equal, the factor on p(y); the difference taken without cancellation.
    const double upper = lower + equal;
    const double drop = -std::expm1(n * std::log1p(-equal / upper));
    const double factor = equal > 0 ? n * std::log(upper) + std::log(drop) - std::log(equal) : 0;
    for (; begin < end; ++begin) result[order[begin]] = logps[order[begin]] + factor;
    lower = upper;
  }
}

}  // namespace

Tensor best_of_n(const Tensor& logps, const Tensor& rewards, int64_t n) {
  if (n < 1) fail("best of {}: at least one draw is needed", n);
  const Tensor p = logps.contiguous(), r = rewards.contiguous();
  Tensor result = at::empty_like(p);
  const int64_t count = p.size(-1);
  for (int64_t row = 0; row < p.numel() / count; ++row) {
    best_of_n(p.const_data_ptr<double>() + row * count, r.const_data_ptr<double>() + row * count, count,
              static_cast<double>(n), result.mutable_data_ptr<double>() + row * count);
  }
  return result;
}

}  // namespace kullback
