// The cases of KTO's fixture: labelled rows, whose response goes with whose prompt, and the rule for weights.
#include <ATen/ATen.h>

#include "kullback/align/kto.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;

KtoOptions options_of(CheckCase& c) {
  KtoOptions o;
  find_method("kto").options->assign(&o, c.options(), c.where());
  return o;
}

CheckOutputs rows(CheckCase& c) {
  const KtoOptions o = options_of(c);
  const auto side = [&](const std::string& infix, const std::string& mask) {
    Side s{
        .logps = c.tensor("policy_" + infix + "logps"), .reference_logps = {}, .mask = c.mask(mask), .divergences = {}};
    if (o.reference()) s.reference_logps = c.tensor("reference_" + infix + "logps");
    return s;
  };
  const Tensor desirable = c.mask("desirable");
  const KtoLoss k = kto_rows_loss({.responses = side("", "mask"),
                                   .desirable = desirable,
                                   .mismatched = o.reference_point() ? side("kl_", "kl_mask") : Side{},
                                   .weight = {}},
                                  o);
  const Tensor rewards = (o.beta * k.log_ratios).detach();
  CheckOutputs outputs{
      {"loss", k.losses.mean()}, {"losses", k.losses}, {"z0", k.z0}, {"logratios", k.log_ratios}, {"rewards", rewards}};
  if (desirable.any().item<bool>()) outputs["reward_desirable_mean"] = rewards.masked_select(desirable).mean();
  if (!desirable.all().item<bool>()) outputs["reward_undesirable_mean"] = rewards.masked_select(~desirable).mean();
  return outputs;
}

CheckOutputs partner(CheckCase& c) {
  const int64_t offset = partner_offset(options_of(c).kl_partner);
  return {{"kl_partner", at::arange(c.input("batch_size").get<int64_t>()).roll(-offset)}};
}

CheckOutputs weights(CheckCase& c) {
  const auto [desirable, undesirable] =
      kto_weights(c.input("n_desirable").get<double>(), c.input("n_undesirable").get<double>(), c.option("ratio", 1.0));
  return {{"desirable_weight", at::scalar_tensor(desirable, at::kDouble)},
          {"undesirable_weight", at::scalar_tensor(undesirable, at::kDouble)}};
}

const RegisteredCheck rows_check{"kto", "", rows}, partner_check{"kto", "kl_partner", partner},
    weights_check{"kto", "weights", weights};

}  // namespace
}  // namespace kullback
