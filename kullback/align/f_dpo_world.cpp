// f-DPO where everything can be enumerated: the optimum under each divergence, and the fixture's cases of it.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/align/calibration.h"
#include "kullback/align/f_dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {

using at::Tensor;
using Constraint = FdpoOptions::Constraint;

ScaledDivergence constraint(const FdpoOptions& o) {
  switch (o.divergence) {
    case Constraint::reverse_kl: break;
    case Constraint::forward_kl: return {divergence("reverse-kl")};
    case Constraint::jsd: return {divergence("js"), 2};
    case Constraint::alpha: return {divergence(fmt::format("alpha:{}", 1 - o.alpha))};
  }
  return {divergence("kl")};
}

namespace {

/// ln g(t), g the inverse of f', at t = end of f' less s (reverse KL has no end).
Tensor log_inverse(const Tensor& s, const FdpoOptions& o) {
  switch (o.divergence) {
    case Constraint::reverse_kl: break;
    case Constraint::forward_kl: return -s.log();                   // f' = -1/u ends at 0
    case Constraint::jsd: return -at::expm1(s).log();               // log(2u / (1 + u)) ends at log 2
    case Constraint::alpha: return -(o.alpha * s).log() / o.alpha;  // (1 - u^-alpha) / alpha ends at 1 / alpha
  }
  fail("reverse KL has its optimum in closed form");
}

CheckOutputs exact_world(CheckCase& c) {
  FdpoOptions o;
  find_method("f-dpo").options->assign(&o, c.options(), c.where());
  const Tensor rewards = c.tensor("rewards"), reference = at::log_softmax(c.tensor("reference_logits"), -1);
  const Tensor policy = at::log_softmax(c.tensor("policy_logits"), -1), best = fdpo_optimum(reference, rewards, o);
  const auto loss = [&](const Tensor& law) {
    return fixture_population_loss([&](const PreferenceBatch& b) { return fdpo_loss(b, o); }, law, reference, rewards);
  };
  const ScaledDivergence d = constraint(o);
  const auto distance = [&](const Tensor& law) {
    return d.factor *
           response_divergence(d.divergence.from_policy(), law.unsqueeze(0), reference.unsqueeze(0)).squeeze(0);
  };
  const auto objective = [&](const Tensor& law) { return expectation(law, rewards) - o.beta * distance(law); };
  return {{"loss", loss(policy)},
          {"loss_at_optimum", loss(best)},
          {"optimal_logps", best},
          {"divergence_at_optimum", distance(best)},
          {"objective_at_optimum", objective(best)},
          {"divergence", distance(policy)},
          {"objective", objective(policy)}};
}

CheckOutputs calibration_error(CheckCase& c) {
  const Calibration k = calibration(c.tensor("confidence"), c.tensor("correct"), c.option<int64_t>("bins", 10));
  return {{"ece", k.error}, {"bin_accuracy", k.accuracy}, {"bin_confidence", k.confidence}, {"bin_count", k.count}};
}

const RegisteredCheck world_check{"f-dpo", "exact_world", exact_world};
const RegisteredCheck calibration_check{"f-dpo", "calibration_error", calibration_error};

}  // namespace

Tensor fdpo_optimum(const Tensor& reference_logps, const Tensor& rewards, const FdpoOptions& o) {
  if (o.divergence == Constraint::reverse_kl) return optimum(reference_logps, rewards, o.beta).logps;
  // The mass falls as lambda grows from where the largest reward meets the end of f'. Bisection on the logarithm of the
  // distance from there keeps digits where nearly all mass is on one outcome.
  const Tensor below = (rewards.max() - rewards) / o.beta;
  const auto law = [&](double log_distance) {
    return reference_logps + log_inverse(below + std::exp(log_distance), o);
  };
  double low = -80, high = 80;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (at::logsumexp(law(middle), 0).item<double>() > 0 ? low : high) = middle;
  }
  return at::log_softmax(law((low + high) / 2), 0);
}

}  // namespace kullback
