// The cases of SALSA's fixture: averages of weights, what they are for log-linear policies, and PPO's step.
#include <ATen/ATen.h>

#include "kullback/align/salsa.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"
#include "kullback/train/weight_average.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs soup(CheckCase& c) {
  const auto weights = c.options().at("weights").get<std::vector<double>>();
  CheckOutputs outputs;
  for (const auto& [key, value] : c.expected().items())
    outputs[key] = weighted_average(c.tensor(key.substr(std::string("soup_").size())).unbind(0), weights);
  return outputs;
}

CheckOutputs log_linear_soup(CheckCase& c) {
  const double alpha = c.option("alpha", 0.5), beta = c.option("beta", 0.05);
  const Tensor features = c.tensor("features"), first = c.tensor("weight_1"), second = c.tensor("weight_2");
  const auto law = [&](const Tensor& weight) { return at::log_softmax(at::matmul(features, weight), -1); };
  const Tensor one = law(first), two = law(second),
               average = law(weighted_average({first, second}, {alpha, 1 - alpha}));
  const Tensor best = optimum(average, c.tensor("rewards"), beta).logps;
  const auto kl = [](const Tensor& p, const Tensor& q) {
    return response_divergence(divergence("kl").from_policy(), p, q);
  };
  return {{"soup_logps", average},
          {"geometric_mean_logps", at::log_softmax(alpha * one + (1 - alpha) * two, -1)},
          {"arithmetic_mean_logps", at::logaddexp(one + std::log(alpha), two + std::log1p(-alpha))},
          {"optimal_logps", best},
          {"kl_start_soup", kl(one, average)},
          {"kl_optimum_soup", kl(best, average)},
          {"kl_optimum_start", kl(best, one)}};
}

CheckOutputs ppo_step(CheckCase& c) {
  SalsaOptions o;
  find_method("salsa").options->assign(&o, c.options(), c.where());
  const PpoSamples s{.old_logps = c.tensor("old_logps"),
                     .reference_logps = c.tensor("reference_logps"),
                     .old_values = c.tensor("old_values"),
                     .scores = c.tensor("scores"),
                     .mask = c.mask("mask")};
  const PpoTargets t = ppo_targets(s, o);
  const PpoLoss l = ppo_loss(s, t, c.tensor("policy_logps"), c.tensor("values"), o);
  const Tensor sequence_kl = t.per_token_kl.sum(-1);
  return {{"loss", l.loss},
          {"per_token_kl", t.per_token_kl},
          {"sequence_kl", sequence_kl},
          {"mean_kl", sequence_kl.mean()},
          {"rewards", t.rewards},
          {"advantages_raw", t.raw_advantages},
          {"advantages", t.advantages},
          {"returns", t.returns},
          {"pg_loss", l.policy_loss},
          {"vf_loss", l.value_loss},
          {"clip_fraction", l.clip_fraction},
          {"approx_kl", l.approximate_kl}};
}

const RegisteredCheck soup_check{"salsa", "soup", soup}, log_linear_check{"salsa", "log_linear_soup", log_linear_soup},
    step_check{"salsa", "ppo_step", ppo_step};

}  // namespace
}  // namespace kullback
