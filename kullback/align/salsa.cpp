#include "kullback/align/salsa.h"

#include <vector>

#include <ATen/ATen.h>

#include "kullback/divergence/sampled_kl.h"
#include "kullback/train/preference.h"

namespace kullback {

using at::Tensor;
using Estimator = SalsaOptions::Estimator;

namespace {

Tensor counted_mean(const Tensor& values, const Tensor& mask) {
  return masked(values, mask).sum() / mask.sum().clamp_min(1);
}

/// Values over their deviation (unbiased, over counted tokens), with mean 0 or the mean that they had. As they are where
/// fewer than two tokens count.
Tensor whitened(const Tensor& values, const Tensor& mask, bool keep_mean) {
  const auto count = mask.sum().item<int64_t>();
  if (count < 2) return values;
  const Tensor mean = counted_mean(values, mask);
  const Tensor variance = masked((values - mean).square(), mask).sum() / static_cast<double>(count - 1);
  const Tensor white = (values - mean) * (variance + 1e-8).rsqrt();
  return masked(keep_mean ? white + mean : white, mask);
}

/// [B,T] bool: the last counted token of each row.
Tensor last_counted(const Tensor& mask) {
  const Tensor so_far = mask.cumsum(-1);
  return mask & (so_far == so_far.narrow(-1, mask.size(-1) - 1, 1));
}

}  // namespace

PpoTargets ppo_targets(const PpoSamples& s, const SalsaOptions& o) {
  const Tensor u = masked(s.old_logps - s.reference_logps, s.mask), values = masked(s.old_values, s.mask);
  PpoTargets t;
  t.per_token_kl = o.kl_estimator == Estimator::k1 ? u : k3_estimate(u);
  t.rewards = -o.kl_coef * t.per_token_kl + masked(s.scores.unsqueeze(-1).expand_as(u), last_counted(s.mask));
  if (o.whiten_rewards) t.rewards = whitened(t.rewards, s.mask, /*keep_mean=*/true);

  std::vector<Tensor> advantages(static_cast<size_t>(u.size(1)));
  Tensor later = at::zeros({u.size(0)}, u.options()), next_value = later;  // [B]
  for (int64_t i = u.size(1) - 1; i >= 0; --i) {
    const Tensor value = values.select(1, i), here = s.mask.select(1, i);
    const Tensor delta = t.rewards.select(1, i) + o.gamma * next_value - value;
    later = at::where(here, delta + o.gamma * o.lam * later, later);
    next_value = at::where(here, value, next_value);
    advantages[static_cast<size_t>(i)] = masked(later, here);
  }
  t.raw_advantages = at::stack(advantages, 1);
  t.returns = masked(t.raw_advantages + values, s.mask);
  t.advantages = o.whiten_advantages ? whitened(t.raw_advantages, s.mask, /*keep_mean=*/false) : t.raw_advantages;
  return t;
}

PpoLoss ppo_loss(const PpoSamples& s, const PpoTargets& t, const Tensor& policy_logps, const Tensor& values,
                 const SalsaOptions& o) {
  const Tensor change = masked(policy_logps - s.old_logps, s.mask), ratio = change.exp();
  const Tensor plain = -t.advantages * ratio, clipped = -t.advantages * ratio.clamp(1 - o.cliprange, 1 + o.cliprange);
  const Tensor near =
      at::minimum(at::maximum(values, s.old_values - o.cliprange_value), s.old_values + o.cliprange_value);
  const Tensor error = at::maximum((values - t.returns).square(), (near - t.returns).square());
  PpoLoss loss{.loss = {},
               .policy_loss = counted_mean(at::maximum(plain, clipped), s.mask),
               .value_loss = counted_mean(error, s.mask) / 2,
               .clip_fraction = counted_mean((clipped > plain).to(ratio.scalar_type()), s.mask),
               .approximate_kl = counted_mean(change.square() / 2, s.mask).detach()};
  loss.loss = loss.policy_loss + o.vf_coef * loss.value_loss;
  return loss;
}

}  // namespace kullback
