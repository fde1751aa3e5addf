#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/base/random.h"
#include "kullback/divergence/head.h"
#include "kullback/world/sequences.h"

namespace kullback {

/// Standard normal numbers, and uniform ones in [0, 1), float64.
at::Tensor normals(at::IntArrayRef sizes, RandomStream& stream);
at::Tensor uniforms(at::IntArrayRef sizes, RandomStream& stream);

/// Numbers of a table at places counted through it: of the shape of `index`, differentiable in `values`.
at::Tensor look_up(const at::Tensor& values, const at::Tensor& index);

/// Rows of log-probabilities [C,P,V] float64: log-softmax of normal logits of the given deviation.
at::Tensor random_rows(const SequenceSpace& space, int64_t prompts, double deviation, RandomStream& stream);

/// Log-probabilities of every token in rows as the streaming head takes them: [N,V], differentiable.
at::Tensor log_probabilities(const Rows& rows);

/// The rows that these log-probabilities are, for the head: [...,V] -> N rows.
Rows as_rows(const at::Tensor& logps);

/// A divergence between laws of responses, [C,R] each -> [C], differentiable in the policy.
at::Tensor response_divergence(const RowDivergence& divergence, const at::Tensor& policy_logps,
                               const at::Tensor& reference_logps);

/// A divergence of the next-token laws summed over a response of the policy, expected: [C,P,V] each -> [C], differentiable
/// in the policy. For `kl` it is the divergence of the responses themselves.
at::Tensor token_divergence(const SequenceSpace& space, const RowDivergence& divergence, const at::Tensor& policy_rows,
                            const at::Tensor& reference_rows);

/// Entropy of laws of responses, [C,R] -> [C], nats.
at::Tensor response_entropy(const at::Tensor& logps);

/// Expected number of tokens of a response, the end token counted: [C,P,V] -> [C].
at::Tensor expected_length(const SequenceSpace& space, const at::Tensor& row_logps);

/// Probability that the token at place t is v, responses that have ended left out: [C,P,V] -> [C,L,V].
at::Tensor token_marginals(const SequenceSpace& space, const at::Tensor& row_logps);

/// Best of n: the law of the response of the largest reward among n draws, ties at random. [C,R] log-probabilities of a draw
/// and rewards -> [C,R] log-probabilities. pi_n(y) = p(y) ((lt + eq)^n - lt^n) / eq with lt, eq the probabilities of a smaller and of an
/// equal reward (arXiv 2401.01879).
at::Tensor best_of_n(const at::Tensor& logps, const at::Tensor& rewards, int64_t n);

}  // namespace kullback
