// How the cases of the golden fixture of the KL estimators are computed.

#include <ATen/ATen.h>

#include "kullback/base/registry.h"
#include "kullback/measure/kl_estimators.h"
#include "kullback/measure/kl_population.h"
#include "kullback/train/check.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;
using Options = KlEstimateOptions;
using Estimator = Options::Estimator;

Options options_of(const CheckCase& c) {
  Options o;
  find_method("kl-estimators").options->assign(&o, c.options(), c.where());
  return o;
}

/// [B,T]: log-probabilities of the labels, by the streaming head.
Tensor logps_of(const Tensor& logits, const Tensor& labels) {
  return label_logps(as_rows(logits), labels.reshape(-1)).reshape(labels.sizes());
}

CheckOutputs outputs(const KlEstimate& e) {
  return {{"loss", e.loss}, {"per_token", e.per_token}, {"per_sequence", e.per_sequence}};
}

CheckOutputs sampled_case(CheckCase& c, const Options& o) {
  const Tensor policy = c.tensor("policy_logits"), reference = c.tensor("reference_logits"),
               labels = c.tensor("labels");
  const Tensor old_logps = c.has("old_logps") ? c.tensor("old_logps") : Tensor();
  const bool exact = o.estimator == Estimator::rb;
  const Tensor kl = exact ? exact_kl(as_rows(policy), as_rows(reference)).reshape(labels.sizes()) : Tensor();
  return outputs(kl_estimate(logps_of(policy, labels), logps_of(reference, labels), c.mask("mask"), o, old_logps, kl));
}

CheckOutputs pointwise_case(CheckCase& c) { return sampled_case(c, options_of(c)); }

CheckOutputs rao_blackwell_case(CheckCase& c) {
  Options o = options_of(c);
  o.estimator = Estimator::rb;
  return sampled_case(c, o);
}

CheckOutputs log_ratio_case(CheckCase& c) {
  const Tensor value = kl_from_log_ratio(options_of(c).estimator, c.tensor("log_ratio"));
  return {{"value", value}, {"loss", value.sum()}};
}

/// The fixture's tables, one a length of prefix, [V^t,V] each: every sequence has `length` tokens.
KlPopulation population_of(CheckCase& c) {
  const SequenceSpace space{
      .vocabulary = c.tensor("policy_table_0").size(-1), .length = c.option<int64_t>("length", 1), .ends = false};
  std::vector<Tensor> policy, reference;
  for (int64_t t = 0; t < space.length; ++t) {
    policy.push_back(c.tensor("policy_table_" + std::to_string(t)));
    reference.push_back(c.tensor("reference_table_" + std::to_string(t)));
  }
  return kl_population(space, at::cat(policy).unsqueeze(0), at::cat(reference).unsqueeze(0));
}

CheckOutputs moments_case(CheckCase& c) {
  const KlPopulation p = population_of(c);
  CheckOutputs out{{"kl", p.kl()}, {"kl_reference_policy", p.forward_kl()}};
  for (const auto& [name, moments] : estimator_moments(p)) {
    out["mean_" + name] = moments.mean;
    out["variance_" + name] = moments.variance;
  }
  return out;
}

CheckOutputs gradients_case(CheckCase& c) {
  const KlPopulation p = population_of(c);
  const std::string name = c.option<std::string>("gradient", "");
  if (name == "true") return {{"loss", p.kl()}};
  if (name == "true_forward") return {{"loss", p.forward_kl()}};
  return {{"loss", estimator_loss(p, name)}};
}

CheckOutputs gaussian_case(CheckCase& c) {
  const double mu = c.option<double>("mu", 1);
  CheckOutputs out;
  const auto number = [](double x) { return at::scalar_tensor(x, at::kDouble); };
  for (const auto& [name, estimator] : {std::pair{"k1", Estimator::k1}, {"k2", Estimator::k2}, {"k3", Estimator::k3}}) {
    const GaussianKlCheck check = gaussian_kl_check(estimator, mu);
    out["kl"] = number(check.kl);
    out[std::string("bias_over_kl_") + name] = number(check.bias_over_kl);
    out[std::string("std_over_kl_") + name] = number(check.deviation_over_kl);
  }
  return out;
}

const RegisteredCheck pointwise{"kl-estimators", "pointwise", pointwise_case};
const RegisteredCheck rao_blackwell{"kl-estimators", "rao_blackwell", rao_blackwell_case};
const RegisteredCheck from_log_ratio{"kl-estimators", "from_log_ratio", log_ratio_case};
const RegisteredCheck moments{"kl-estimators", "moments", moments_case};
const RegisteredCheck gradients{"kl-estimators", "gradients", gradients_case};
const RegisteredCheck gaussian{"kl-estimators", "gaussian", gaussian_case};

}  // namespace
}  // namespace kullback
