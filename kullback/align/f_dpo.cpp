#include "kullback/align/f_dpo.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {
namespace {

using at::Tensor;
using Constraint = FdpoOptions::Constraint;

double largest_exponent(const FdpoOptions& o, const Tensor& like) {
  return o.exp_clamp.value_or(like.scalar_type() == at::kDouble ? unbounded : 80);
}

/// The exponent that is taken of a log-ratio, before it is clamped.
Tensor exponent(const Tensor& h, const FdpoOptions& o) { return o.divergence == Constraint::alpha ? -o.alpha * h : -h; }

/// f'(u) of the response's probability ratio u = exp(h), up to a constant.
Tensor f_score(const Tensor& h, const FdpoOptions& o) {
  const auto clamped_exp = [&] { return exponent(h, o).clamp_max(largest_exponent(o, h)).exp(); };
  switch (o.divergence) {
    case Constraint::reverse_kl: return h;
    case Constraint::forward_kl: return -clamped_exp();
    case Constraint::jsd: return std::log(2) + at::log_sigmoid(h);
    case Constraint::alpha: return -clamped_exp() / o.alpha;
  }
  return h;
}

/// [B]: 1 where the clamp has taken a side's gradient.
Tensor clamped(const Tensor& h, const FdpoOptions& o) {
  const bool may_be = o.divergence == Constraint::forward_kl || o.divergence == Constraint::alpha;
  return may_be ? (exponent(h.detach(), o) > largest_exponent(o, h)).to(h.scalar_type()) : at::zeros_like(h.detach());
}

}  // namespace

PreferenceLoss fdpo_loss(const PreferenceBatch& batch, const FdpoOptions& o) {
  const Tensor w = score(batch.chosen).log_ratio(), l = score(batch.rejected).log_ratio();  // [B]
  const Tensor chosen_reward = o.beta * f_score(w, o), rejected_reward = o.beta * f_score(l, o);
  const Tensor z = chosen_reward - rejected_reward;
  PreferenceLoss loss = pairwise_loss(batch, logistic_loss(z), chosen_reward, rejected_reward, z);
  loss.parts["chosen_logratio"] = w.detach();
  loss.parts["rejected_logratio"] = l.detach();
  loss.parts["exp_clamped"] = at::maximum(clamped(w, o), clamped(l, o));
  return loss;
}

namespace {

const Registered f_dpo{
    preference_method<FdpoOptions>("f-dpo")
        .summary("DPO whose policy is held to the reference by another f-divergence than reverse KL")
        .formula("loss = mean over pairs of -log sigmoid(beta * (f'(u_w) - f'(u_l)))\n"
                 "u_w  = policy(chosen | prompt) / reference(chosen | prompt), of the whole response; u_l likewise\n"
                 "f'(u): reverse_kl log u; forward_kl -1/u; jsd log(2u / (1 + u)); alpha -u^(-alpha) / alpha\n"
                 "Its minimiser maximises E[reward] - beta D_f(policy || reference), D_f = sum reference f(u).")
        .when("When DPO makes answers too alike: forward_kl keeps most diversity, jsd and alpha lie between. beta is "
              "not comparable across divergences. forward_kl and alpha take exponents of sums over tokens: expect "
              "large losses on long responses, clip gradients, and watch exp_clamped, the share of pairs that have "
              "lost a side's gradient.")
        .paper({"Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints",
                "2309.16240", "ICLR 2024"})
        .option("beta", &FdpoOptions::beta, positive, "strength of the pull to the reference", "paper")
        .option("divergence", &FdpoOptions::divergence,
                {{"reverse_kl", Constraint::reverse_kl},
                 {"forward_kl", Constraint::forward_kl},
                 {"jsd", Constraint::jsd},
                 {"alpha", Constraint::alpha}},
                "what holds the policy to the reference; total variation and chi-squared do not qualify, as their f' "
                "stays bounded at ratio 0")
        .option("alpha", &FdpoOptions::alpha,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true, .maximum_excluded = true},
                "order of the alpha-divergence: near 0 it is reverse KL, near 1 forward KL", "paper")
        .option("exp-clamp", &FdpoOptions::exp_clamp, positive,
                "largest exponent of forward_kl and alpha; off: what the numbers can hold (80 in float32)", "TRL")
        .loss(fdpo_loss)};

}  // namespace
}  // namespace kullback
