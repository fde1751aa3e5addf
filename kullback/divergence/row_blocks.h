#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// What a loss says of a few rows at once, for what the head's statistics cannot express (sorted laws, subsets of tokens):
/// student [n,V] and teacher [n,V'] logits -> [n] or [n,K] numbers, differentiable in the student's logits. Soft-cap and
/// temperature are done, padding is cut off. `first`: the number of the first row.
using RowFunction = std::function<at::Tensor(const at::Tensor& student, const at::Tensor& teacher, int64_t first)>;

/// A function of every row, with the weight of each known beforehand.
struct RowBlockLoss {
  at::Tensor loss;    ///< scalar: the weighted sum, differentiable in the student's hidden states, head and bias
  at::Tensor values;  ///< [N] or [N,K], without gradient
};

/// sum of weights * f over all rows, walked in blocks of rows that hold at most `memory` bytes of logits and gradients: the
/// N x V of a batch never exists. float32, or float64 where the rows are. A weight of 0 takes a row out, gradient and NaN
/// included. The teacher gets no gradient.
RowBlockLoss row_block_loss(const Rows& student, const Rows& teacher, const RowFunction& f, const at::Tensor& weights,
                            int64_t memory = 64 << 20);

/// The values alone.
at::Tensor row_block_values(const Rows& student, const Rows& teacher, const RowFunction& f, int64_t memory = 64 << 20);

/// A divergence between rows of logits as they stand, [...,V] each -> [N], differentiable in the policy's: what a RowFunction
/// calls for the laws that it has made.
at::Tensor row_divergence(const RowDivergence& divergence, const at::Tensor& policy, const at::Tensor& reference);

/// Logits [count,V] of a few rows from `first` on, soft-cap and temperature done, without gradient: for a RowFunction that needs
/// a third law.
at::Tensor row_logits(const Rows& rows, int64_t first, int64_t count);

/// The rows at these places [M] alone.
Rows rows_at(Rows rows, const at::Tensor& places);

}  // namespace kullback
