#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kullback/divergence/head_walk.h"

namespace kullback::detail {

/// One token of a block: its rows of logits, transformed in place. Where the vocabularies differ, both rows are as wide as
/// the larger one, with -inf beyond their own.
template <class T>
struct Row {
  int64_t token;  // its index among all
  int64_t vocabulary, reference_vocabulary;
  int64_t width;         // the larger one
  T* policy;             // [width]
  T* reference;          // [width] or null
  const T* scores;       // [width] or null
  int64_t label = -100;  // -100: none
};

/// How the rows become those of the laws.
template <class T>
struct RowTransforms {
  Transform<T> policy, reference;
};

/// Where a row's statistics are written, each at the token's index; null: not wanted.
struct StatisticsOut {
  double *logps = nullptr, *logsumexp = nullptr, *entropy = nullptr, *expected = nullptr, *top_logps = nullptr;
  std::vector<double*> divergences;
};

/// A gradient of one row: its upstream and the row that receives it (which may be one of the row's own).
template <class T>
struct RowGradient {
  const Upstream* upstream;
  T* out;  // [width]
};

/// How a block's statistics and gradient share their passes over the rows.
enum class Sharing {
  none,      // the sums first, then the gradient
  deferred,  // the gradient needs no sum: KL(reference || policy) is summed while its gradient is made
  kept,      // G and q are kept in the rows' places, and the gradient is a combination of them
};

/// What is possible where the walk makes one gradient as it goes. With `kept` the rows are gone after row_statistics.
Sharing choose_sharing(const HeadRequest& request, const Upstream& upstream, bool softcap);

/// Sums both rows and writes the statistics.
template <class T>
void row_statistics(const Row<T>& row, const RowTransforms<T>& transforms, const HeadRequest& request, Sharing sharing,
                    RowStates& states, const StatisticsOut& out);

/// Only transforms both rows, whose sums are known.
template <class T>
void transform_rows(const Row<T>& row, const RowTransforms<T>& transforms);

/// Writes the gradients of the row's logits as they were before the transform.
template <class T>
void row_gradients(const Row<T>& row, const RowTransforms<T>& transforms, const HeadRequest& request, Sharing sharing,
                   RowStates& states, const StatisticsOut& out, std::span<const RowGradient<T>> gradients);

}  // namespace kullback::detail
