#pragma once

#include <ATen/core/Tensor.h>

namespace kullback {

/// The law that maximises E[reward] - beta KL(policy || reference): reference(y) exp(reward(y)/beta) / Z.
struct Optimum {
  at::Tensor logps;          ///< [K] log-probabilities
  at::Tensor log_partition;  ///< scalar, ln Z
};
/// reference_logps: [K] normalised log-probabilities of all K outcomes; rewards: [K]; beta > 0.
Optimum optimum(const at::Tensor& reference_logps, const at::Tensor& rewards, double beta);

/// Expected value of `values` [K] under log-probabilities [K]; outcomes of probability 0 count nothing, whatever their value.
at::Tensor expectation(const at::Tensor& logps, const at::Tensor& values);

/// Every ordered pair of outcomes with its probability under Bradley-Terry labels: both drawn from `reference`, the first
/// preferred with probability sigmoid(reward difference). Pairs are laid out as chosen = i / K, rejected = i % K.
struct PreferencePopulation {
  at::Tensor chosen, rejected;  ///< [K*K] int64
  at::Tensor weight;            ///< [K*K], sums to 1
};
PreferencePopulation preference_population(const at::Tensor& reference_logps, const at::Tensor& rewards);

}  // namespace kullback
