#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/divergence.h"

namespace kullback {

/// Where rows of logits come from: hidden states and a head, or logits as they stand.
struct Rows {
  at::Tensor hidden;       ///< [N,D] float32, bfloat16 or float64; with `weight` undefined these are the logits [N,V]
  at::Tensor weight;       ///< [V,D], of the type of `hidden`
  at::Tensor bias;         ///< [V] or undefined
  double temperature = 1;  ///< logits are divided by it, after the soft-cap; > 0
  double softcap = 0;      ///< c: logits become c tanh(z / c); 0: none
  int64_t vocabulary = 0;  ///< rows of the head that are real; 0: all. Those beyond are padding and take no part.
  /// Instead of a head: makes the logits [n,vocabulary] of any rows of `hidden` [n,D], whatever these hold (what was recorded
  /// of a row, the hidden states of several models side by side). A few rows are made at a time. Without gradient.
  std::function<at::Tensor(const at::Tensor& hidden)> make = {};
};

/// What becomes of tokens that only one of two vocabularies of different sizes has. Ids mean the same in both; the smaller
/// one is a prefix of the larger.
enum class UnequalVocabularies {
  refuse,       ///< different sizes are an Error
  renormalise,  ///< both laws, for every statistic, are those of the common prefix: renormalised over it
  prefix,       ///< the laws keep their normalisers; a divergence is summed over the common prefix alone, as
                ///< sum q f(p/q) - f'(1) (p - q) >= 0 (for kl: sum p ln(p/q) - p + q). Only for f-divergences.
  whole,        ///< a token beyond the other law's vocabulary has probability 0 there: kl may be infinite
};

/// Which statistics of each row are wanted.
struct HeadRequest {
  at::Tensor labels;  ///< [N] int64; -100: ignored (log-probability 0, no gradient). Undefined when no logps are wanted
  bool logps = false;      ///< log-probability of the label
  bool logsumexp = false;  ///< ln sum_v exp z_v
  bool entropy = false;    ///< -sum_v q_v ln q_v, nats
  at::Tensor scores;       ///< [V]: wanted is their expected value under the row; undefined when not wanted
  int64_t top_k = 0;       ///< how many of the likeliest tokens are wanted; ties go to the smaller id
  std::vector<RowDivergence> divergences;                     ///< between the policy's and the reference's row
  UnequalVocabularies unequal = UnequalVocabularies::refuse;  ///< for a reference of another vocabulary
};

/// Statistics of rows, each [N] (top_*: [N,k]); those not wanted are undefined. float64 where the rows are, else float32.
struct HeadStatistics {
  at::Tensor logps, logsumexp, entropy, expected;
  at::Tensor top_ids, top_logps;
  std::vector<at::Tensor> divergences;
};

/// The memory that a walk may hold unless its settings say otherwise, in bytes: 128 MiB until it is set, for this process.
int64_t head_memory();
/// Sets it: at least 16 MiB, else an Error.
void set_head_memory(int64_t bytes);

/// How the head is walked.
struct HeadSettings {
  /// Bytes that may be held beyond inputs, outputs and their gradients; at least 16 MiB. Less memory is slower: blocks of
  /// fewer tokens read the head's weight more often, and a backward pass finds less of the forward one kept. Statistics
  /// that wait for their backward pass hold theirs until then; else it is left to the next walk.
  int64_t memory = head_memory();
};

/// Frees the working memory that the last walk has left to the next.
void release_head_memory();

/// Statistics of the policy's rows, differentiable in its hidden states, weight and bias (in its logits where those are
/// given). Never holds N x V numbers.
HeadStatistics head_statistics(const Rows& policy, const HeadRequest& request, const HeadSettings& settings = {});

/// The same with a reference, for divergences between the rows; the two heads may have different widths D. The reference
/// gets no gradient.
HeadStatistics head_statistics(const Rows& policy, const Rows& reference, const HeadRequest& request,
                               const HeadSettings& settings = {});

/// Log-probabilities of labels [N] alone, as head_statistics gives them.
at::Tensor label_logps(const Rows& policy, const at::Tensor& labels);

/// A loss whose weights on each token's statistics are known before the walk.
struct HeadLoss {
  at::Tensor loss;            ///< scalar float64 (float32 rows: float32), differentiable in the policy
  HeadStatistics statistics;  ///< the statistics themselves, without gradient
};

/// sum_s sum_t w_s[t] statistic_s[t], with its gradient made in the same walk: three matrix products in all, where the
/// statistics followed by a loss of them cost four. `weights` has the shape of the statistics: an undefined weight is 0.
HeadLoss head_loss(const Rows& policy, const HeadRequest& request, const HeadStatistics& weights,
                   const HeadSettings& settings = {});
HeadLoss head_loss(const Rows& policy, const Rows& reference, const HeadRequest& request, const HeadStatistics& weights,
                   const HeadSettings& settings = {});

}  // namespace kullback
