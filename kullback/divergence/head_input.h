#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback::detail {

/// Rows of the head (columns of logits), padding included.
int64_t rows_of_head(const Rows& rows);
/// Those that are real.
int64_t real_vocabulary(const Rows& rows);

/// What a walk takes, checked, with unequal vocabularies settled: an Error names what is wrong.
struct HeadInput {
  HeadInput(Rows policy, std::optional<Rows> reference, HeadRequest request);

  Rows policy;
  std::optional<Rows> reference;  // only where a divergence needs it
  HeadRequest request;            // labels contiguous; scores in the computing type, 0 beyond the policy's vocabulary
  at::ScalarType type = at::kFloat;  // computing type
  int64_t tokens = 0;
  int64_t vocabulary = 0, reference_vocabulary = 0;
  int64_t width = 0;  // of both rows while they are compared: the larger vocabulary

  bool from_logits() const { return !policy.weight.defined(); }

 private:
  void settle_vocabularies();
};

/// Weights of each token's statistics, float64: [N], top_logps [N,k]; null: 0.
struct Upstream {
  const double* logps = nullptr;
  const double* logsumexp = nullptr;
  const double* entropy = nullptr;
  const double* expected = nullptr;
  const double* top_logps = nullptr;
  std::vector<const double*> divergences;
  std::vector<at::Tensor> kept;  // what the pointers point into
};
Upstream upstream_of(const HeadStatistics& weights, const HeadRequest& request, int64_t tokens);

}  // namespace kullback::detail
