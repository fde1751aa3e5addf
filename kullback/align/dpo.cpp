#include "kullback/align/dpo.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {
namespace {

using at::Tensor;
using LossType = DpoOptions::LossType;

/// LD-DPO (arXiv 2409.06411): tokens beyond the shorter response's length count `alpha` times. [B,T]
Tensor length_weight(const Tensor& mask, const Tensor& shorter, double alpha, const Tensor& like) {
  const Tensor within = mask.cumsum(-1) <= shorter.unsqueeze(-1);
  return at::where(within, at::ones({}, like.options()), at::full({}, alpha, like.options()));
}

Tensor sorted(const Tensor& values) { return std::get<0>(values.sort()); }

/// Each pair's loss [B] for one row of the table. w: chosen, l: rejected, s: log-ratio, z: beta times their difference.
Tensor pair_losses(LossType type, const Score& w, const Score& l, const Tensor& z, const PreferenceBatch& batch,
                   const DpoOptions& o) {
  const double e = o.label_smoothing, beta = o.beta;
  const Tensor reward_w = beta * w.log_ratio(), reward_l = beta * l.log_ratio();
  switch (type) {
    case LossType::sigmoid: return logistic_loss(z, e);
    case LossType::robust:  // arXiv 2403.00409
      return (-(1 - e) * at::log_sigmoid(z) + e * at::log_sigmoid(-z)) / (1 - 2 * e);
    case LossType::hinge: return hinge_loss(z);
    case LossType::ipo:
      return ipo_loss(o.ipo_length_normalize ? w.mean_log_ratio() - l.mean_log_ratio() : w.log_ratio() - l.log_ratio(),
                      beta);
    case LossType::sigmoid_norm: return logistic_loss(beta * (w.mean_log_ratio() - l.mean_log_ratio()));
    case LossType::exo_pair:  // reverse KL to the smoothed label, arXiv 2402.00856
      return at::sigmoid(z) * (at::log_sigmoid(z) - std::log1p(-e)) +
             at::sigmoid(-z) * (at::log_sigmoid(-z) - std::log(e));
    case LossType::nca_pair:  // arXiv 2402.05369
      return -at::log_sigmoid(reward_w) - 0.5 * at::log_sigmoid(-reward_w) - 0.5 * at::log_sigmoid(-reward_l);
    case LossType::bco_pair: return logistic_loss(reward_w) + logistic_loss(-reward_l);  // arXiv 2404.04656
    case LossType::sppo_hard:
      return ipo_loss(w.log_ratio(), beta) + ipo_loss(-l.log_ratio(), beta);            // arXiv 2405.00675
    case LossType::apo_zero: return 1 - at::sigmoid(reward_w) + at::sigmoid(reward_l);  // arXiv 2408.06266
    case LossType::apo_down: return at::sigmoid(reward_w) + 1 - at::sigmoid(z);
    case LossType::aot:  // arXiv 2406.05882: the two sides are compared quantile by quantile
      return logistic_loss(beta * (sorted(w.policy - l.policy) - sorted(w.reference - l.reference)), e);
    case LossType::aot_unpaired: return logistic_loss(beta * (sorted(w.log_ratio()) - sorted(l.log_ratio())), e);
    case LossType::discopop: {  // arXiv 2406.08414; exp(-z) sigmoid(z/tau) would be infinite times zero for z << 0
      const Tensor sharp = z / o.discopop_tau;
      return -at::log_sigmoid(z) * at::sigmoid(-sharp) + at::exp(-z + at::log_sigmoid(sharp));
    }
    case LossType::sft: {  // one number for the whole step, so that it adds to every pair alike
      const double pairs = batch.pairs_in_step > 0 ? batch.pairs_in_step / static_cast<double>(z.size(0)) : 1;
      return (supervised_loss(batch) * pairs).expand_as(z);
    }
  }
  return z;
}

void validate(const DpoOptions& o) {
  if (o.loss_type.empty()) fail("option --loss-type: at least one is needed");
  if (o.loss_weights.size() != o.loss_type.size()) {
    fail("option --loss-weights: {} given for {} loss types", o.loss_weights.size(), o.loss_type.size());
  }
  for (const LossType type : o.loss_type) {
    if (type == LossType::exo_pair && o.label_smoothing == 0) {
      fail("option --label-smoothing: exo-pair needs a value above 0 (1e-3 is usual)");
    }
  }
}

const Choices<LossType> loss_types{{"sigmoid", LossType::sigmoid},
                                   {"robust", LossType::robust},
                                   {"hinge", LossType::hinge},
                                   {"ipo", LossType::ipo},
                                   {"sigmoid_norm", LossType::sigmoid_norm},
                                   {"exo_pair", LossType::exo_pair},
                                   {"nca_pair", LossType::nca_pair},
                                   {"bco_pair", LossType::bco_pair},
                                   {"sppo_hard", LossType::sppo_hard},
                                   {"apo_zero", LossType::apo_zero},
                                   {"apo_down", LossType::apo_down},
                                   {"aot", LossType::aot},
                                   {"aot_unpaired", LossType::aot_unpaired},
                                   {"discopop", LossType::discopop},
                                   {"sft", LossType::sft}};

}  // namespace

PreferenceLoss dpo_loss(const PreferenceBatch& batch, const DpoOptions& o) {
  Side chosen = without_forbidden_tokens(batch.chosen), rejected = without_forbidden_tokens(batch.rejected);
  if (o.reference == DpoOptions::Reference::none) chosen.reference_logps = rejected.reference_logps = Tensor();
  Tensor chosen_weight, rejected_weight;
  if (o.ld_alpha) {
    const Tensor shorter = at::minimum(chosen.mask.sum(-1), rejected.mask.sum(-1));
    chosen_weight = length_weight(chosen.mask, shorter, *o.ld_alpha, chosen.logps);
    rejected_weight = length_weight(rejected.mask, shorter, *o.ld_alpha, rejected.logps);
  }
  const Score w = score(chosen, chosen_weight), l = score(rejected, rejected_weight);
  const Tensor z = o.beta * (w.log_ratio() - l.log_ratio());  // [B]

  Tensor losses = at::zeros_like(z);
  for (size_t i = 0; i < o.loss_type.size(); ++i) {
    losses = losses + o.loss_weights[i] * pair_losses(o.loss_type[i], w, l, z, batch, o);
  }
  PreferenceLoss loss = pairwise_loss(batch, losses, o.beta * w.log_ratio(), o.beta * l.log_ratio(), z);
  loss.parts["policy_chosen_sum"] = w.policy.detach();
  loss.parts["policy_rejected_sum"] = l.policy.detach();
  return loss;
}

namespace {

const Registered dpo{
    preference_method<DpoOptions>("dpo")
        .summary("Direct Preference Optimization: raises the likelihood ratio of chosen over rejected responses "
                 "against a reference")
        .formula("loss = mean over pairs of -log sigmoid(beta * (s_w - s_l))\n"
                 "s_w  = log policy(chosen | prompt) - log reference(chosen | prompt), summed over the response's "
                 "tokens; s_l likewise\n"
                 "Its minimiser on infinite data is policy(y|x) = reference(y|x) exp(r(x,y)/beta) / Z(x).")
        .when("The first thing to try with pairs of answers. Lower beta moves further from the reference. `robust` or "
              "label "
              "smoothing help when some labels are wrong, `ipo` when preferences are nearly deterministic, "
              "`sigmoid_norm` "
              "against growing lengths.")
        .paper({"Direct Preference Optimization: Your Language Model is Secretly a Reward Model", "2305.18290",
                "NeurIPS 2023"})
        .paper(
            {"Understanding Reference Policies in Direct Preference Optimization", "2407.13709", "NAACL Findings 2025"})
        .option("beta", &DpoOptions::beta, positive,
                "strength of the pull to the reference; smaller lets the policy move further", "paper")
        .option("reference", &DpoOptions::reference,
                {{"policy", DpoOptions::Reference::policy},
                 {"none", DpoOptions::Reference::none},
                 {"prior", DpoOptions::Reference::prior}},
                "rewards against the reference's likelihood, against nothing, or against the reference's likelihood "
                "without the prompt")
        .option("loss-type", &DpoOptions::loss_type, loss_types, "the loss of a pair; several are added up", "TRL")
        .option("loss-weights", &DpoOptions::loss_weights, any_number, "one weight a loss type")
        .option("label-smoothing", &DpoOptions::label_smoothing, from_to_below(0, 0.5),
                "assumed rate of flipped labels: conservative DPO with sigmoid; used by robust, exo_pair and aot too")
        .option("ipo-length-normalize", &DpoOptions::ipo_length_normalize,
                "ipo compares mean log-ratios a token, not sums", "TRL")
        .option("ld-alpha", &DpoOptions::ld_alpha, fraction,
                "weight of the tokens beyond the shorter response's length")
        .option("discopop-tau", &DpoOptions::discopop_tau, positive, "temperature of discopop's switch", "TRL")
        .needs([](const DpoOptions& o) {
          using Reference = DpoOptions::Reference;
          return Needs{.reference_logps = o.reference != Reference::none,
                       .reference_without_prompt = o.reference == Reference::prior};
        })
        .validate(validate)
        .loss(dpo_loss)};

}  // namespace
}  // namespace kullback
