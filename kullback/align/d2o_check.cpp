// The cases of D2O's fixture.
#include <ATen/ATen.h>

#include "kullback/align/d2o.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

D2oOptions options_of(CheckCase& c) {
  D2oOptions o;
  find_method("d2o").options->assign(&o, c.options(), c.where());
  return o;
}

CheckOutputs loss(CheckCase& c) {
  const Tensor self = c.tensor("policy_self_logps");  // [B,K,T]
  const auto rows = [](const Tensor& values) { return values.flatten(0, 1); };
  return preference_outputs(
      d2o_loss({.chosen = {.logps = rows(self),
                           .reference_logps = rows(c.tensor("reference_minus_self_logps")),
                           .mask = rows(c.mask("self_mask")),
                           .divergences = {}},
                .rejected = {.logps = c.tensor("policy_negative_logps"),
                             .reference_logps = c.tensor("reference_plus_negative_logps"),
                             .mask = c.mask("negative_mask"),
                             .divergences = {}},
                .weight = {},
                .chosen_pair = at::arange(self.size(0), at::kLong).repeat_interleave(self.size(1))},
               options_of(c)));
}

CheckOutputs exact_world(CheckCase& c) {
  const D2oOptions o = options_of(c);
  const auto law = [&](const char* name) { return at::log_softmax(c.tensor(name), -1); };
  const Tensor policy = law("policy_logits"), negative = law("negative_logits"), minus = law("reference_minus_logits"),
               plus = law("reference_plus_logits");
  const auto kl = [](const Tensor& p, const Tensor& q) {
    return response_divergence(divergence("kl").from_policy(), p.unsqueeze(0), q.unsqueeze(0)).squeeze(0);
  };
  const auto margin = [&](double beta, double alpha, const Tensor& lower, const Tensor& upper) {
    return beta * expectation(policy, policy - lower) - alpha * expectation(negative, policy - upper);
  };
  return {{"expected_margin", margin(o.beta, o.alpha, minus, plus)},
          {"kl_policy_reference_minus", kl(policy, minus)},
          {"kl_negative_policy", kl(negative, policy)},
          {"kl_negative_reference_plus", kl(negative, plus)},
          {"jeffreys_policy_negative", kl(policy, negative) + kl(negative, policy)},
          {"margin_with_both_references_mu", margin(1, 1, negative, negative)}};
}

const RegisteredCheck loss_check{"d2o", "loss", loss}, world_check{"d2o", "exact_world", exact_world};

}  // namespace
}  // namespace kullback
