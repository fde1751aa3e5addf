// The cases of TR-DPO's fixture: updates of the reference, short runs, KTO on pairs, and where updates lead.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/align/tr_dpo.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"
#include "kullback/train/weight_average.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

TrDpoOptions options_of(CheckCase& c) {
  TrDpoOptions o;
  Json given = c.options();
  for (const char* of_the_run : {"lr", "steps", "stages"}) given.erase(of_the_run);
  find_method("tr-dpo").options->assign(&o, given, c.where());
  return o;
}

CheckOutputs reference_update(CheckCase& c) {
  const double weight = options_of(c).moving_reference().weight;
  CheckOutputs outputs;
  for (const auto& [key, value] : c.expected().items()) {
    const std::string name = key.substr(std::string("new_reference_").size());
    const Tensor reference = c.tensor("reference_" + name).clone();
    move_towards({{name, reference}}, {{name, c.tensor("policy_" + name)}}, weight);
    outputs[key] = reference;
  }
  return outputs;
}

/// Steps of plain gradient descent on a softmax over responses.
CheckOutputs run(CheckCase& c) {
  const TrDpoOptions o = options_of(c);
  const MovingReference rule = o.moving_reference();
  Tensor policy = c.tensor("policy_logits").clone();
  const Tensor reference = c.tensor("reference_logits").clone(), initial = at::log_softmax(reference, 0);
  const auto steps = c.option<int64_t>("steps", 1);
  std::vector<Tensor> losses, policies, references, synced, distances;
  for (int64_t step = 1; step <= steps; ++step) {
    const Tensor logits = policy.detach().requires_grad_(true);
    const auto side = [&](const char* name) {
      const Tensor index = c.tensor(name);
      return Side{.logps = at::log_softmax(logits, 0).index_select(0, index).unsqueeze(1),
                  .reference_logps = at::log_softmax(reference, 0).index_select(0, index).unsqueeze(1),
                  .mask = at::ones({index.size(0), 1}, at::kBool),
                  .divergences = {}};
    };
    const PreferenceLoss loss = tr_dpo_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}}, o);
    policy = logits.detach() - c.option("lr", 1.0) * torch::autograd::grad({loss.value}, {logits})[0];
    const bool now = rule.now(step, steps);
    if (now) move_towards({{"logits", reference}}, {{"logits", policy}}, rule.weight);
    const Tensor law = at::log_softmax(policy, 0);
    losses.push_back(loss.value.detach()), policies.push_back(policy), references.push_back(reference.clone());
    synced.push_back(at::scalar_tensor(now ? 1 : 0, at::kDouble));
    distances.push_back(expectation(law, law - initial));
  }
  return {{"losses", at::stack(losses)},
          {"policy_logits_after", at::stack(policies)},
          {"reference_logits_after", at::stack(references)},
          {"synced", at::stack(synced)},
          {"kl_policy_initial_reference", at::stack(distances)}};
}

CheckOutputs kto_pair_loss(CheckCase& c) {
  TrDpoOptions o = options_of(c);
  o.loss_type = TrDpoOptions::LossType::kto;
  const auto side = [&](const std::string& name) {
    return Side{.logps = c.tensor("policy_" + name + "_logps"),
                .reference_logps = c.tensor("reference_" + name + "_logps"),
                .mask = c.mask(name + "_mask"),
                .divergences = {}};
  };
  CheckOutputs outputs =
      preference_outputs(tr_dpo_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}}, o));
  outputs["losses"] = outputs["response_losses"];
  return outputs;
}

/// Each stage trains to its optimum, after which the reference follows.
CheckOutputs exact_world(CheckCase& c) {
  const TrDpoOptions o = options_of(c);
  const Tensor rewards = c.tensor("rewards"), logits = c.tensor("reference_logits");
  const auto stages = c.option<int64_t>("stages", 1);
  Tensor hard = at::log_softmax(logits, 0);
  const Tensor soft = logits.clone();
  std::vector<Tensor> policies, references;
  for (int64_t stage = 0; stage < stages; ++stage) {
    policies.push_back(hard = optimum(hard, rewards, o.beta).logps);
    move_towards({{"logits", soft}}, {{"logits", soft + rewards / o.beta}}, o.alpha);
    references.push_back(at::log_softmax(soft, 0));
  }
  const auto closed_form = [&](double weight) {
    return optimum(at::log_softmax(logits, 0), rewards, o.beta / (weight * static_cast<double>(stages))).logps;
  };
  return {{"hard_policy_after_stage", at::stack(policies)},
          {"soft_reference_after_stage", at::stack(references)},
          {"hard_closed_form", closed_form(1)},
          {"soft_closed_form", closed_form(o.alpha)}};
}

const RegisteredCheck update_check{"tr-dpo", "reference_update", reference_update}, run_check{"tr-dpo", "run", run},
    kto_check{"tr-dpo", "kto_pair_loss", kto_pair_loss}, world_check{"tr-dpo", "exact_world", exact_world};

}  // namespace
}  // namespace kullback
