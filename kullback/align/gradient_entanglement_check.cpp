// The cases of the diagnostic's fixture, over the weights of a linear head.
#include <ATen/ATen.h>

#include "kullback/align/gradient_entanglement.h"
#include "kullback/align/head_gradients.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;

EntanglementOptions options_of(CheckCase& c) {
  EntanglementOptions o;
  find_method("gradient-entanglement").options->assign(&o, c.options(), c.where());
  return o;
}

HeadSide side(CheckCase& c, const std::string& name) {
  return {c.tensor(name + "_hidden"), c.tensor(name + "_labels").to(at::kLong), c.mask(name + "_mask")};
}

PairLogps logps_of(CheckCase& c, const Tensor& weight) {
  const HeadSide w = side(c, "chosen"), l = side(c, "rejected");
  const auto length = [](const HeadSide& s) { return s.mask.sum(-1).to(at::kDouble); };
  return {.chosen = head_logps(weight, w).sum(-1),
          .rejected = head_logps(weight, l).sum(-1),
          .reference_chosen = c.tensor("reference_chosen_logp"),
          .reference_rejected = c.tensor("reference_rejected_logp"),
          .chosen_length = length(w),
          .rejected_length = length(l)};
}

CheckOutputs diagnose(CheckCase& c) {
  const EntanglementOptions o = options_of(c);
  const Tensor weight = c.tensor("head_weight");
  const HeadSide w = side(c, "chosen"), l = side(c, "rejected");
  const PairLogps pairs = logps_of(c, weight);
  const Tensor g_w = head_gradients(weight, w), g_l = head_gradients(weight, l);
  const PairGradients g = inner_products(g_w, g_l);
  const Entanglement e = entanglement(pairs, g, o);
  Tensor actual_w = at::zeros_like(e.loss), actual_l = actual_w.clone();
  for (int64_t b = 0; b < e.loss.size(0); ++b) {  // the step on that pair alone
    const Tensor moved = weight + o.step * (e.chosen_weight[b] * g_w[b] - e.rejected_weight[b] * g_l[b]);
    const PairLogps after = logps_of(c, moved);
    actual_w[b] = after.chosen[b] - pairs.chosen[b];
    actual_l[b] = after.rejected[b] - pairs.rejected[b];
  }
  const auto signs = [](const Tensor& a, const Tensor& b) { return at::stack({a.sign(), b.sign()}, 1); };
  return {{"logp_chosen", pairs.chosen},
          {"logp_rejected", pairs.rejected},
          {"pair_loss", e.loss},
          {"inner", g.inner},
          {"norm_chosen", g.chosen_norm},
          {"norm_rejected", g.rejected_norm},
          {"cosine", e.cosine},
          {"condition", e.condition},
          {"coef_chosen", e.chosen_weight},
          {"coef_rejected", e.rejected_weight},
          {"bound_chosen", e.chosen_bound},
          {"bound_rejected", e.rejected_bound},
          {"predicted_chosen", e.chosen_change},
          {"predicted_rejected", e.rejected_change},
          {"actual_chosen", actual_w},
          {"actual_rejected", actual_l},
          {"normalised_predicted_chosen", e.normalised_chosen_change},
          {"normalised_predicted_rejected", e.normalised_rejected_change},
          {"regime", signs(e.chosen_change, e.rejected_change)},
          {"normalised_regime", signs(e.normalised_chosen_change, e.normalised_rejected_change)},
          {"token_cosine_pair0", token_cosines(weight, w, l, 0)},
          {"mean_condition", e.condition.mean()},
          {"mean_cosine", e.cosine.mean()}};
}

CheckOutputs batch(CheckCase& c) {
  return {{"loss", margin_loss(logps_of(c, c.tensor("head_weight")), options_of(c)).mean()}};
}

CheckOutputs sparse(CheckCase& c) {
  const auto one = [&](const std::string& name) {
    return Side{.logps = c.tensor("policy_" + name + "_logps"),
                .reference_logps = c.tensor("reference_" + name + "_logps"),
                .mask = c.mask(name + "_mask"),
                .divergences = {}};
  };
  const GatedLoss l =
      gated_loss({.chosen = one("chosen"), .rejected = one("rejected"), .weight = {}}, c.tensor("gate_chosen"),
                 c.tensor("gate_rejected"), c.option("beta", 0.1), c.option("lambda", 0.0));
  return {{"loss", l.loss}, {"margin", l.margin}, {"l1", l.l1}};
}

const char* const name = "gradient-entanglement";
const RegisteredCheck diagnose_check{name, "diagnose", diagnose}, batch_check{name, "batch", batch},
    sparse_check{name, "sparse", sparse};

}  // namespace
}  // namespace kullback
