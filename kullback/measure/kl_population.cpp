#include "kullback/measure/kl_population.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/train/preference.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;
using Estimator = KlEstimateOptions::Estimator;
using Form = KlEstimateOptions::Form;

KlEstimate estimate(const KlPopulation& p, const KlEstimateOptions& o) {
  return kl_estimate(p.policy, p.reference, p.mask, o, p.policy.detach(), p.exact);
}

Tensor in_reward(const KlPopulation& p, Estimator estimator) {
  return kl_in_reward(p.policy, estimate(p, {.estimator = estimator}).per_token, p.mask);
}

/// The surrogate of each sequence. [S]
Tensor surrogate(const KlPopulation& p, const std::string& use) {
  const auto as_loss = [&](KlEstimateOptions o) { return estimate(p, o).surrogate; };
  if (use == "k1_as_loss") return as_loss({.estimator = Estimator::k1});
  if (use == "k2_tokens_as_loss") return as_loss({.estimator = Estimator::k2});
  if (use == "k2_sequence_as_loss") return as_loss({.estimator = Estimator::k2, .form = Form::sequence});
  if (use == "k3_tokens_as_loss") return as_loss({.estimator = Estimator::k3});
  if (use == "k3_sequence_as_loss") return as_loss({.estimator = Estimator::k3, .form = Form::sequence});
  if (use == "k3_tokens_with_ratio") return as_loss({.estimator = Estimator::k3, .ratio = true});
  if (use == "rb_as_loss") return as_loss({.estimator = Estimator::rb});
  if (use == "rb_with_prefix_term") return as_loss({.estimator = Estimator::rb, .prefix_term = true});
  if (use == "k1_as_reward") return in_reward(p, Estimator::k1);
  if (use == "k2_as_reward") return in_reward(p, Estimator::k2);
  if (use == "k3_as_reward") return in_reward(p, Estimator::k3);
  if (use == "k3_reward_plus_loss") {
    return in_reward(p, Estimator::k3) + as_loss({.estimator = Estimator::k3});
  }
  fail("unknown use of an estimator \"{}\"", use);
}

}  // namespace

Tensor KlPopulation::probability() const { return sequence_sum(policy, mask).exp(); }
Tensor KlPopulation::kl() const { return mean(sequence_sum(policy - reference, mask)); }
Tensor KlPopulation::forward_kl() const {
  return (sequence_sum(reference, mask).exp() * sequence_sum(reference - policy, mask)).sum();
}
Tensor KlPopulation::mean(const Tensor& values) const { return (probability() * values).sum(); }

KlPopulation kl_population(const SequenceSpace& space, const Tensor& policy_rows, const Tensor& reference_rows) {
  const SequenceTable table = sequence_table(space);
  const Tensor place = table.prefixes * space.vocabulary + table.tokens;  // [S,T]
  return {.policy = look_up(log_probabilities(as_rows(policy_rows)), place),
          .reference = look_up(log_probabilities(as_rows(reference_rows)), place),
          .exact = look_up(exact_kl(as_rows(policy_rows), as_rows(reference_rows)), table.prefixes),
          .mask = table.mask};
}

std::vector<std::pair<std::string, Moments>> estimator_moments(const KlPopulation& p) {
  const std::pair<const char*, KlEstimateOptions> estimators[] = {
      {"k1", {.estimator = Estimator::k1}},
      {"k2_tokens", {.estimator = Estimator::k2}},
      {"k2_sequence", {.estimator = Estimator::k2, .form = Form::sequence}},
      {"k3_tokens", {.estimator = Estimator::k3}},
      {"k3_sequence", {.estimator = Estimator::k3, .form = Form::sequence}},
      {"rb", {.estimator = Estimator::rb}}};
  std::vector<std::pair<std::string, Moments>> all;
  for (const auto& [name, options] : estimators) {
    const Tensor values = estimate(p, options).per_sequence, mean = p.mean(values);
    all.emplace_back(name, Moments{mean, p.mean((values - mean).square())});
  }
  return all;
}

Tensor estimator_loss(const KlPopulation& p, const std::string& use) {
  return (p.probability().detach() * surrogate(p, use)).sum();
}

}  // namespace kullback
