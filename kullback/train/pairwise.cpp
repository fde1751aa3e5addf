#include "kullback/train/pairwise.h"

#include <ATen/ATen.h>

#include "kullback/base/options.h"

namespace kullback {

using at::Tensor;

Tensor Score::log_ratio() const { return policy - reference; }
Tensor Score::mean_log_ratio() const { return a_token().log_ratio(); }
Score Score::a_token() const {
  const Tensor tokens = length.clamp_min(1);
  return {.policy = policy / tokens, .reference = reference / tokens, .length = length};
}

Score score(const Side& given, const Tensor& token_weight) {
  const Side side = without_forbidden_tokens(given);
  const auto sum = [&](const Tensor& logps) {
    const Tensor counted = masked(logps, side.mask);
    return (token_weight.defined() ? counted * token_weight : counted).sum(-1);
  };
  const Tensor policy = sum(side.logps);
  return {.policy = policy,
          .reference = side.reference_logps.defined() ? sum(side.reference_logps) : at::zeros_like(policy),
          .length = token_counts(side.mask, policy)};
}

Tensor smallest(const Tensor& uniforms, const Tensor& mask, const Tensor& count) {
  const Tensor key = at::where(mask, uniforms, at::full({}, unbounded, uniforms.options()));
  const Tensor rank = key.argsort(/*stable=*/true, -1).argsort(/*stable=*/true, -1);
  return mask & (rank < count.unsqueeze(-1));
}

Tensor logistic_loss(const Tensor& z, double flipped) {
  const Tensor plain = -at::log_sigmoid(z);
  return flipped == 0 ? plain : (1 - flipped) * plain - flipped * at::log_sigmoid(-z);
}

Tensor hinge_loss(const Tensor& z, double margin) { return at::relu(margin - z); }
Tensor hinge_loss(const Tensor& z, const Tensor& margin) { return at::relu(margin - z); }

Tensor ipo_loss(const Tensor& difference, double beta) { return (difference - 1 / (2 * beta)).square(); }

Tensor supervised_loss(const PreferenceBatch& batch) {
  const Side& chosen = batch.chosen;
  const double tokens =
      batch.chosen_tokens_in_step > 0 ? batch.chosen_tokens_in_step : std::max(1.0, chosen.mask.sum().item<double>());
  return -sequence_sum(chosen.logps, chosen.mask).sum() / tokens;
}

PreferenceLoss pairwise_loss(const PreferenceBatch& batch, const Tensor& losses, const Tensor& chosen_rewards,
                             const Tensor& rejected_rewards, const Tensor& logits) {
  return {.value = mean_over_pairs(losses, batch),
          .losses = losses,
          .chosen_rewards = chosen_rewards.detach(),
          .rejected_rewards = rejected_rewards.detach(),
          .parts = {{"logits", logits.detach()}}};
}

}  // namespace kullback
