// H-DPO where everything can be enumerated: the cases of its fixture.
#include <ATen/ATen.h>

#include "kullback/align/h_dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs exact_world(CheckCase& c) {
  HdpoOptions o;
  find_method("h-dpo").options->assign(&o, c.options(), c.where());
  const Tensor rewards = c.tensor("rewards"), reference = at::log_softmax(c.tensor("reference_logits"), -1);
  const Tensor policy = at::log_softmax(c.tensor("policy_logits"), -1);
  const Optimum best = optimum(reference / o.alpha, rewards, o.alpha * o.beta);
  const auto loss = [&](const Tensor& law) {
    return fixture_population_loss([&](const PreferenceBatch& b) { return hdpo_loss(b, o); }, law, reference, rewards);
  };
  const auto entropy = [](const Tensor& law) { return response_entropy(law.unsqueeze(0)).squeeze(0); };
  const auto objective = [&](const Tensor& law) {
    return expectation(law, rewards + o.beta * reference) + o.alpha * o.beta * entropy(law);
  };
  return {{"loss", loss(policy)},
          {"loss_at_optimum", loss(best.logps)},
          {"optimal_logps", best.logps},
          {"log_partition", best.log_partition},
          {"entropy_at_optimum", entropy(best.logps)},
          {"objective_at_optimum", objective(best.logps)},
          {"objective", objective(policy)},
          {"entropy", entropy(policy)}};
}

const RegisteredCheck check{"h-dpo", "exact_world", exact_world};

}  // namespace
}  // namespace kullback
