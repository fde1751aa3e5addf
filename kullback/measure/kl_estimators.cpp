#include "kullback/measure/kl_estimators.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/sampled_kl.h"
#include "kullback/train/preference.h"

namespace kullback {
namespace {

using at::Tensor;
using Estimator = KlEstimateOptions::Estimator;
using Form = KlEstimateOptions::Form;
using Reduction = KlEstimateOptions::Reduction;

/// Sums of what comes after each token. [B,T]
Tensor sums_after(const Tensor& values) { return values.sum(-1, true) - values.cumsum(-1); }

}  // namespace

Tensor kl_from_log_ratio(Estimator estimator, const Tensor& u) {
  switch (estimator) {
    case Estimator::k1: return u;
    case Estimator::k2: return u.square() / 2;
    case Estimator::k3: return k3_estimate(u);
    case Estimator::rb: break;
  }
  fail("rb is no function of a token's log-ratio: it needs both models' rows");
}

KlEstimate kl_estimate(const Tensor& policy_logps, const Tensor& reference_logps, const Tensor& mask,
                       const KlEstimateOptions& o, const Tensor& old_logps, const Tensor& exact) {
  if (o.ratio && !old_logps.defined()) fail("option --ratio needs the old policy's log-probabilities");
  if (o.form == Form::sequence && (o.estimator == Estimator::rb || o.ratio)) {
    fail("option --form: {} has the token form alone", o.ratio ? "an estimate times the ratio" : "rb");
  }
  if (o.prefix_term && o.estimator != Estimator::rb) fail("option --prefix-term belongs to rb");
  if (o.estimator == Estimator::rb && !exact.defined()) fail("rb needs the exact KL of the rows at each token");

  Tensor u = masked(policy_logps - reference_logps, mask);
  if (o.clamp) u = u.clamp(-*o.clamp, *o.clamp);
  KlEstimate result;
  if (o.form == Form::sequence) {
    result.per_sequence = result.surrogate = kl_from_log_ratio(o.estimator, u.sum(-1));
  } else {
    Tensor k = o.estimator == Estimator::rb ? exact : kl_from_log_ratio(o.estimator, u);
    if (o.ratio) k = k * (policy_logps - old_logps).exp();
    result.per_token = masked(k, mask);
    result.per_sequence = result.surrogate = result.per_token.sum(-1);
    if (o.prefix_term) {
      const Tensor later = sums_after(result.per_token.detach());
      result.surrogate = result.per_sequence + (masked(policy_logps, mask) * later).sum(-1);
    }
  }
  const int64_t responses = mask.size(0);
  const Tensor counts = mask.to(policy_logps.scalar_type()).sum(-1);  // [B]
  const Tensor total = counts.sum().clamp_min(1);
  const bool by_token = o.reduction == Reduction::token_mean;
  const auto reduced = [&](const Tensor& sums) {
    return by_token ? sums.sum() / total : sums.sum() / std::max<int64_t>(responses, 1);
  };
  result.value = reduced(result.per_sequence);
  result.loss = reduced(result.surrogate);
  // A ratio of sums (token mean) has the error of its residuals, by the delta method.
  const Tensor residual = by_token
                              ? (result.per_sequence - result.value * counts) * (static_cast<double>(responses) / total)
                              : result.per_sequence - result.value;
  result.standard_error = responses < 2
                              ? std::nan("")
                              : std::sqrt(residual.detach().square().sum().item<double>() /
                                          (static_cast<double>(responses) * static_cast<double>(responses - 1)));
  return result;
}

Tensor exact_kl(const Rows& policy, const Rows& reference) {
  HeadRequest request;
  request.divergences = {divergence("kl").from_policy()};
  return head_statistics(policy, reference, request).divergences[0];
}

Tensor kl_in_reward(const Tensor& policy_logps, const Tensor& per_token, const Tensor& mask) {
  const Tensor penalties = masked(per_token, mask).detach();
  return (masked(policy_logps, mask) * (penalties + sums_after(penalties))).sum(-1);
}

GaussianKlCheck gaussian_kl_check(Estimator estimator, double mu) {
  // u is normal, with this mean and variance; E e^-u = 1.
  const double mean = mu * mu / 2, variance = mu * mu, kl = mean;
  switch (estimator) {
    case Estimator::k1: return {kl, 0, std::sqrt(variance) / kl};
    case Estimator::k2: {
      const double second_moment = mean * mean + variance;
      return {kl, (second_moment / 2 - kl) / kl, std::sqrt(variance * variance / 2 + mean * mean * variance) / kl};
    }
    case Estimator::k3: return {kl, 0, std::sqrt(std::expm1(variance) - variance) / kl};
    case Estimator::rb: return {kl, 0, 0};
  }
  return {kl, 0, 0};
}

namespace {

Method method() {
  auto options = std::make_shared<Options<KlEstimateOptions>>();
  options
      ->option("estimator", &KlEstimateOptions::estimator,
               {{"k1", Estimator::k1}, {"k2", Estimator::k2}, {"k3", Estimator::k3}, {"rb", Estimator::rb}},
               "u, u^2/2, e^-u - 1 + u, or the exact KL of the rows at each prefix of the sample",
               "rb in reports, k1 in rewards")
      .option("form", &KlEstimateOptions::form, {{"token", Form::token}, {"sequence", Form::sequence}},
              "the estimator of each token's log-ratio, summed, or of the sequence's")
      .option(
          "reduction", &KlEstimateOptions::reduction,
          {{"sequence_sum", Reduction::sequence_sum}, {"token_mean", Reduction::token_mean}},
          "mean over responses of their sums (the KL of the sequences' law), or the mean over tokens that trainers log")
      .option("prefix-term", &KlEstimateOptions::prefix_term,
              "rb as a loss: add each token's effect on later prefixes, which makes the gradient that of the KL")
      .option("ratio", &KlEstimateOptions::ratio, "times policy / old policy, for samples of an older policy")
      .option("clamp", &KlEstimateOptions::clamp, positive, "cut |u| to this; biases the estimate");
  return {
      .name = "kl-estimators",
      .family = Family::measurement,
      .summary = "Estimators of KL(policy || reference) from samples: k1, k2, k3 and Rao-Blackwell",
      .formula =
          "u = log policy(y_t) - log reference(y_t)\n"
          "k1 = u,  k2 = u^2 / 2,  k3 = e^-u - 1 + u,  rb = KL of the next-token laws at the sample's prefixes\n"
          "As a loss: k1 has gradient 0; k2 of the sequence and rb with the prefix term have that of KL(policy || "
          "reference);\n"
          "k3 has that of KL(reference || policy). In the reward: k1 has that of KL(policy || reference), k2 and k3 "
          "have not.",
      .when =
          "rb for reports: never more variance than k1. k1 belongs in a reward, never in a loss. k3 may have infinite "
          "variance where the policy has left the reference. None holds for samples drawn at another temperature or "
          "with top-p.",
      .papers = {{"Approximating KL Divergence", "", "J. Schulman, note, 2020"},
                 {"Better Estimation of the KL Divergence Between Language Models", "2504.10637", "2025"}},
      .needs = {"samples of the policy", "log-probabilities under policy and reference; rb: the rows of both"},
      .options = options,
      .recipe = {}};
}

const Registered kl_estimators{method()};

}  // namespace
}  // namespace kullback
