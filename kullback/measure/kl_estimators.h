#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Estimators of KL(policy || reference) from samples of the policy. u = log policy - log reference of a sampled token, nats.
/// k1 = u, k2 = u^2 / 2, k3 = e^-u - 1 + u (Schulman 2020); rb: the exact KL of the next-token laws at each prefix of the
/// sample, Rao and Blackwell's improvement of k1 (arXiv 2504.10637).
struct KlEstimateOptions {
  enum class Estimator { k1, k2, k3, rb };
  enum class Form { token, sequence };
  enum class Reduction { sequence_sum, token_mean };

  Estimator estimator = Estimator::rb;
  Form form = Form::token;  ///< k of each token's u, or k of the sequence's sum U; rb has the token form alone
  Reduction reduction = Reduction::sequence_sum;
  bool prefix_term =
      false;           ///< rb as a loss: add what a token does to the prefixes after it; then the gradient is right
  bool ratio = false;  ///< times policy / old policy, gradient kept, for samples of an older policy
  std::optional<double> clamp = {};  ///< |u| is cut to this; biases
};

struct KlEstimate {
  at::Tensor value;           ///< scalar: the estimate, per_sequence reduced
  at::Tensor loss;            ///< scalar: what a trainer minimises; the value itself but for the prefix term
  at::Tensor per_token;       ///< [B,T], 0 where the mask is false (sequence form: undefined)
  at::Tensor per_sequence;    ///< [B] estimates
  at::Tensor surrogate;       ///< [B] per_sequence with the prefix term, if asked for; differentiable
  double standard_error = 0;  ///< of `value` over the responses; NaN for fewer than two
};

/// k1, k2 or k3 of log-ratios u, elementwise. Exact near 0, where e^-u - 1 + u would lose all digits.
at::Tensor kl_from_log_ratio(KlEstimateOptions::Estimator estimator, const at::Tensor& log_ratio);

/// Log-probabilities of the sampled tokens under both models [B,T] and the mask [B,T] bool. `old_logps` [B,T]: of the policy
/// that drew the samples, for `ratio`. `exact` [B,T]: KL of the rows at each token, for rb (exact_kl).
KlEstimate kl_estimate(const at::Tensor& policy_logps, const at::Tensor& reference_logps, const at::Tensor& mask,
                       const KlEstimateOptions& options, const at::Tensor& old_logps = {},
                       const at::Tensor& exact = {});

/// [N]: KL(policy || reference) of the rows, by the streaming head; differentiable in the policy.
at::Tensor exact_kl(const Rows& policy, const Rows& reference);

/// The estimator put in the reward: sum_t log policy(y_t) times the (detached) penalties from t on. [B] surrogate whose
/// gradient over samples of the policy is that of the mean penalty. per_token: [B,T] k1, k2 or k3 of each token.
at::Tensor kl_in_reward(const at::Tensor& policy_logps, const at::Tensor& per_token, const at::Tensor& mask);

/// Schulman's example: samples of N(0,1), log-ratio to N(mu,1). Bias and standard deviation of an estimator over the true KL.
struct GaussianKlCheck {
  double kl, bias_over_kl, deviation_over_kl;
};
GaussianKlCheck gaussian_kl_check(KlEstimateOptions::Estimator estimator, double mu);

}  // namespace kullback
