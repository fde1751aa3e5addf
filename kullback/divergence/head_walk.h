#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/definition.h"
#include "kullback/divergence/head.h"

namespace kullback::detail {

/// How many tokens are walked at once. All that was measured about it is in this one place.
struct Blocking {
  int64_t tokens;       // of a block
  int64_t weight_rows;  // of a tile of a weight that must first be converted (bfloat16)
};
Blocking choose_blocking(int64_t tokens, int64_t vocabulary, int64_t width, int64_t rows_held, int64_t bytes_a_number,
                         int64_t memory);

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

/// Gradients that a walk makes, in the rows' computing type. Undefined: not wanted.
struct HeadGradients {
  at::Tensor hidden;  // [N,D]; of the logits [N,V] where those are given
  at::Tensor weight;  // [V,D], in the weight's own type
  at::Tensor bias;    // [V]
};

/// What the first walk learns about each token, from which a later one makes gradients in one pass over the logits.
struct RowStates {
  std::vector<Normaliser> policy, reference;  // [N]
  std::vector<double> entropy, expected;      // [N]
  struct OfDivergence {
    std::vector<double> value, basis;  // [N]
  };
  std::vector<OfDivergence> divergences;
  at::Tensor top_ids;  // [N,k]
};

/// Walks the tokens in blocks: a matrix product gives a block's logits, then each row's statistics and gradient are made
/// while it is in the cache.
class HeadWalk {
 public:
  HeadWalk(Rows policy, std::optional<Rows> reference, HeadRequest request, const HeadSettings& settings);

  int64_t tokens() const { return tokens_; }
  int64_t vocabulary() const { return vocabulary_; }
  at::ScalarType computing_type() const { return type_; }
  bool from_logits() const { return !policy_.weight.defined(); }
  /// How many gradients of different upstreams one block can hold.
  int64_t gradients_held() const { return reference_ ? 2 : 1; }
  const HeadRequest& request() const { return request_; }

  /// A walk for gradients will follow the one for statistics: its first block need not be computed again.
  void keep_last_block() { keep_last_ = true; }

  /// The statistics in float64, without gradient; each `upstreams[i]` also gets its gradient in `gradients[i]`.
  HeadStatistics statistics(RowStates& states, std::span<const Upstream> upstreams = {},
                            std::span<HeadGradients> gradients = {});
  /// The gradients alone, the blocks' logits made anew.
  void gradients(RowStates& states, const Upstream& upstream, HeadGradients& gradients);

 private:
  struct Block;
  template <class T>
  void walk(RowStates& states, HeadStatistics* statistics, std::span<const Upstream> upstreams,
            std::span<HeadGradients> gradients);
  void products(const Block& block, bool begin, std::span<HeadGradients> gradients) const;

  Rows policy_;
  std::optional<Rows> reference_;
  HeadRequest request_;
  int64_t tokens_ = 0, vocabulary_ = 0;
  at::ScalarType type_;
  Blocking blocking_{};
  // The last block's logits, kept from a walk without gradients for the one that makes them.
  bool keep_last_ = false;
  at::Tensor policy_space_, reference_space_;  // [B,V]
};

}  // namespace kullback::detail
