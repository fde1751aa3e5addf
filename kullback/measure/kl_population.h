#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/measure/kl_estimators.h"
#include "kullback/world/sequences.h"

namespace kullback {

/// All sequences that a policy can draw, with what every estimator of KL(policy || reference) would see in each: their means,
/// variances and gradients follow exactly, without sampling.
struct KlPopulation {
  at::Tensor policy, reference;  ///< [S,T] log-probability of each token; differentiable in the policy's rows
  at::Tensor exact;              ///< [S,T] KL of the next-token laws before each token
  at::Tensor mask;               ///< [S,T] bool

  at::Tensor probability() const;                   ///< [S] of each sequence, differentiable
  at::Tensor kl() const;                            ///< scalar KL(policy || reference) of sequences, differentiable
  at::Tensor forward_kl() const;                    ///< scalar KL(reference || policy), differentiable
  at::Tensor mean(const at::Tensor& values) const;  ///< expectation of [S] under the policy, differentiable
};

/// policy_rows, reference_rows: [1,P,V] logits or log-probabilities.
KlPopulation kl_population(const SequenceSpace& space, const at::Tensor& policy_rows, const at::Tensor& reference_rows);

/// Exact mean and variance of an estimator.
struct Moments {
  at::Tensor mean, variance;  ///< scalars
};
/// Of `k1`, `k2_tokens`, `k2_sequence`, `k3_tokens`, `k3_sequence` and `rb`, in this order.
std::vector<std::pair<std::string, Moments>> estimator_moments(const KlPopulation& population);

/// The scalar whose gradient an infinite sample would give to the policy where the KL estimator is used as `use` says:
/// `k1_as_loss`, `k2_tokens_as_loss`, `k2_sequence_as_loss`, `k3_tokens_as_loss`, `k3_sequence_as_loss`,
/// `k3_tokens_with_ratio`, `rb_as_loss`, `rb_with_prefix_term`, `k1_as_reward`, `k2_as_reward`, `k3_as_reward` or
/// `k3_reward_plus_loss`. Samples are fixed where the estimator is differentiated. Error for another use.
at::Tensor estimator_loss(const KlPopulation& population, const std::string& use);

}  // namespace kullback
