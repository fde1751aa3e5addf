#pragma once

#include <span>

#include "kullback/divergence/divergence.h"

namespace kullback {

/// D(p||q) of two probability vectors. Error if the sizes differ, a probability is negative or not finite, or a sum differs
/// from 1 by more than 1e-6 (within that the vectors are rescaled).
double between(const Divergence& divergence, std::span<const double> p, std::span<const double> q);

/// D(p||q) of the laws softmax(a) and softmax(z) of two rows of logits or of log-probabilities; -inf allowed.
double between_logits(const Divergence& divergence, std::span<const double> a, std::span<const double> z);

/// D(p||q) of the relative frequencies of two tables of counts; `smoothing` (>= 0) is added to each count first. Error if a
/// count is negative or not finite, or a table holds nothing.
double between_counts(const Divergence& divergence, std::span<const double> counts_p, std::span<const double> counts_q,
                      double smoothing = 0);

/// The least cost of moving p to q where moving mass 1 from i to j costs cost[i * q.size() + j] >= 0; exact, by shortest
/// augmenting paths (about n^3 steps). p and q may have different sizes.
double transport_cost(std::span<const double> p, std::span<const double> q, std::span<const double> cost);

}  // namespace kullback
