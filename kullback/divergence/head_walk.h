#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"
#include "kullback/divergence/head_input.h"
#include "kullback/divergence/head_memory.h"
#include "kullback/divergence/row_kernels.h"

namespace kullback::detail {

/// What becomes of a walk's logits.
enum class Leave {
  nothing,
  rows,  // those of the last block stay, for the walk back
  basis,  // of the last block stay the gradients of its logits for a weight of 1: that of one divergence and nothing else
};

/// How many tokens are walked at once. All that was measured about it is in choose_blocking.
struct Blocking {
  int64_t tokens;            // of a block: the policy's logits, and the gradient's products
  int64_t reference_tokens;  // the reference's logits come in parts of a block
  int64_t weight_rows;       // of a tile of a weight that must first be converted (bfloat16)
};
Blocking choose_blocking(const HeadInput& input, Leave leave, int64_t memory);

/// Gradients that a walk makes. Undefined: not wanted.
struct HeadGradients {
  at::Tensor hidden;  // [N,D]; of the logits [N,V] where those are given
  at::Tensor weight;  // [V,D]
  at::Tensor bias;    // [V], in the computing type
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

/// Walks the tokens in blocks: a matrix product gives a block's logits, one pass of vector code over each row its
/// statistics and the gradient of its logits, and two more products the gradients of hidden states and weight.
class HeadWalk {
 public:
  /// `reserved`: bytes of settings.memory that the caller holds.
  HeadWalk(HeadInput input, const HeadSettings& settings, Leave leave = Leave::nothing, int64_t reserved = 0);

  const HeadInput& input() const { return input_; }
  /// How many gradients of different upstreams one walk can make.
  int64_t gradients_held() const { return input_.reference ? 2 : 1; }

  /// The statistics in float64, without gradient; each `upstreams[i]` also gets its gradient in `gradients[i]`. To leave a
  /// basis, the upstream is 1 and only the last block's gradient is made.
  HeadStatistics statistics(RowStates& states, std::span<const Upstream> upstreams = {},
                            std::span<HeadGradients> gradients = {});
  /// The gradients alone, the blocks' logits made anew but for what was left of the last.
  void gradients(RowStates& states, const Upstream& upstream, HeadGradients& gradients);

 private:
  struct Block;
  template <class T>
  struct Pass;
  template <class T>
  void walk(RowStates& states, HeadStatistics* statistics, std::span<const Upstream> upstreams,
            std::span<HeadGradients> gradients);
  template <class T>
  void rows(const Block& block, const Pass<T>& pass) const;
  at::Tensor block_logits(const Rows& rows, int64_t vocabulary, int64_t first, const at::Tensor& space) const;
  void products(const at::Tensor& logits, int64_t first, bool begin, HeadGradients& gradients) const;

  HeadInput input_;
  Leave leave_;
  int64_t memory_;
  Blocking blocking_;
  WorkingMemory left_;  // what `leave` says
};

}  // namespace kullback::detail
