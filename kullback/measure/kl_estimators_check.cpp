// How the cases of the golden fixture of the KL estimators are computed.

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/measure/kl_estimators.h"
#include "kullback/train/check.h"

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

Rows rows_of(const Tensor& logits) {
  Rows rows;
  rows.hidden = logits.reshape({-1, logits.size(-1)});
  return rows;
}

/// [B,T]: log-probabilities of the labels, by the streaming head.
Tensor logps_of(const Tensor& logits, const Tensor& labels) {
  HeadRequest request;
  request.labels = labels.reshape(-1);
  request.logps = true;
  return head_statistics(rows_of(logits), request).logps.reshape(labels.sizes());
}

CheckOutputs outputs(const KlEstimate& e) {
  return {{"loss", e.loss}, {"per_token", e.per_token}, {"per_sequence", e.per_sequence}};
}

CheckOutputs sampled_case(CheckCase& c, const Options& o) {
  const Tensor policy = c.tensor("policy_logits"), reference = c.tensor("reference_logits"),
               labels = c.tensor("labels");
  const Tensor old_logps = c.has("old_logps") ? c.tensor("old_logps") : Tensor();
  const bool exact = o.estimator == Estimator::rb;
  const Tensor kl = exact ? exact_kl(rows_of(policy), rows_of(reference)).reshape(labels.sizes()) : Tensor();
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

/// All sequences of a tabular pair of models, each with its tokens' log-probabilities and exact next-token KL.
struct World {
  Tensor policy, reference, exact;  // [S,T]
  Tensor mask;                      // [S,T], all true

  Tensor probability() const { return policy.sum(-1).exp(); }  // [S], differentiable
};

World world_of(CheckCase& c) {
  const int64_t length = c.option<int64_t>("length", 1), vocabulary = c.tensor("policy_table_0").size(-1);
  int64_t sequences = 1;
  for (int64_t t = 0; t < length; ++t) sequences *= vocabulary;
  const Tensor index = at::arange(sequences, at::kLong);
  std::vector<Tensor> policy, reference, exact;
  int64_t tail = sequences;
  for (int64_t t = 0; t < length; ++t) {
    const Tensor prefix = index.div(tail, "floor");
    tail /= vocabulary;
    const Tensor token = index.div(tail, "floor").remainder(vocabulary);
    const Tensor ours = c.tensor("policy_table_" + std::to_string(t)).index_select(0, prefix);
    const Tensor theirs = c.tensor("reference_table_" + std::to_string(t)).index_select(0, prefix);
    policy.push_back(logps_of(ours, token));
    reference.push_back(logps_of(theirs, token));
    exact.push_back(exact_kl(rows_of(ours), rows_of(theirs)));
  }
  World w{at::stack(policy, 1), at::stack(reference, 1), at::stack(exact, 1), {}};
  w.mask = at::ones_like(w.policy, at::kBool);
  return w;
}

KlEstimate estimate(const World& w, Estimator estimator, Options::Form form = Options::Form::token,
                    bool prefix_term = false, bool ratio = false) {
  Options o;
  o.estimator = estimator;
  o.form = form;
  o.prefix_term = prefix_term;
  o.ratio = ratio;
  return kl_estimate(w.policy, w.reference, w.mask, o, w.policy.detach(), w.exact);
}

Tensor kl_of_sequences(const World& w) { return (w.probability() * (w.policy - w.reference).sum(-1)).sum(); }
Tensor forward_kl_of_sequences(const World& w) {
  return (w.reference.sum(-1).exp() * (w.reference - w.policy).sum(-1)).sum();
}

CheckOutputs moments_case(CheckCase& c) {
  const World w = world_of(c);
  CheckOutputs out{{"kl", kl_of_sequences(w)}, {"kl_reference_policy", forward_kl_of_sequences(w)}};
  const auto add = [&](const std::string& name, const KlEstimate& e) {
    const Tensor mean = (w.probability() * e.per_sequence).sum();
    out["mean_" + name] = mean;
    out["variance_" + name] = (w.probability() * (e.per_sequence - mean).square()).sum();
  };
  constexpr auto sequence = Options::Form::sequence;
  add("k1", estimate(w, Estimator::k1));
  add("k2_tokens", estimate(w, Estimator::k2));
  add("k2_sequence", estimate(w, Estimator::k2, sequence));
  add("k3_tokens", estimate(w, Estimator::k3));
  add("k3_sequence", estimate(w, Estimator::k3, sequence));
  add("rb", estimate(w, Estimator::rb));
  return out;
}

/// The surrogate of one row of the card's table, for each sequence.
Tensor surrogate(const World& w, const std::string& name, const std::string& where) {
  constexpr auto sequence = Options::Form::sequence;
  const auto reward = [&](Estimator e) { return kl_in_reward(w.policy, estimate(w, e).per_token, w.mask); };
  if (name == "k1_as_loss") return estimate(w, Estimator::k1).surrogate;
  if (name == "k2_tokens_as_loss") return estimate(w, Estimator::k2).surrogate;
  if (name == "k2_sequence_as_loss") return estimate(w, Estimator::k2, sequence).surrogate;
  if (name == "k3_tokens_as_loss") return estimate(w, Estimator::k3).surrogate;
  if (name == "k3_sequence_as_loss") return estimate(w, Estimator::k3, sequence).surrogate;
  if (name == "k3_tokens_with_ratio") return estimate(w, Estimator::k3, Options::Form::token, false, true).surrogate;
  if (name == "rb_as_loss") return estimate(w, Estimator::rb).surrogate;
  if (name == "rb_with_prefix_term") return estimate(w, Estimator::rb, Options::Form::token, true).surrogate;
  if (name == "k1_as_reward") return reward(Estimator::k1);
  if (name == "k2_as_reward") return reward(Estimator::k2);
  if (name == "k3_as_reward") return reward(Estimator::k3);
  if (name == "k3_reward_plus_loss") return reward(Estimator::k3) + estimate(w, Estimator::k3).surrogate;
  fail("{}: unknown gradient \"{}\"", where, name);
}

CheckOutputs gradients_case(CheckCase& c) {
  const World w = world_of(c);
  const std::string name = c.option<std::string>("gradient", "");
  if (name == "true") return {{"loss", kl_of_sequences(w)}};
  if (name == "true_forward") return {{"loss", forward_kl_of_sequences(w)}};
  // Samples are fixed when the estimator is differentiated: the mean's weights carry no gradient.
  return {{"loss", (w.probability().detach() * surrogate(w, name, c.where())).sum()}};
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
