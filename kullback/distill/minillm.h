#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/train/distillation.h"

namespace kullback {

/// MiniLLM: KL(student || teacher) of whole responses by policy gradient, made steady by an exact first step, by drawing from a
/// mixture with the teacher, and by returns divided by what is left of the response. Gu et al. 2023, arXiv 2306.08543.
struct MinillmOptions {
  enum class RewardToGo { inclusive, exclusive };  ///< whether a token's own reward is in its return
  enum class Whiten { none, masked, all };
  enum class SingleStepWeight { none, importance };

  double teacher_mix = 0.2;  ///< alpha, in [0, 1): responses are drawn from alpha p + (1 - alpha) q
  double gamma = 0.95;       ///< discount of later rewards
  bool length_norm = true;   ///< returns divided by the tokens that are left
  RewardToGo reward_to_go = RewardToGo::inclusive;
  double reward_scaling = 0.5;  ///< rewards are divided by it
  double reward_clip = 100;     ///< then kept within +- this; 0: off
  Whiten whiten = Whiten::masked;
  double clip = 0.2;        ///< of the probability ratio, PPO's
  bool single_step = true;  ///< add KL(q || p) of every next-token law
  SingleStepWeight single_step_weight = SingleStepWeight::none;
  double kd_ratio = 0.5;       ///< of the plain text's loss
  double lm_coef = 1;          ///< weight of that loss
  int64_t ppo_epochs = 4;      ///< passes over a rollout
  int64_t num_rollouts = 256;  ///< prompts of a rollout
  double temperature = 1;      ///< of both laws, in drawing and in the loss
  double top_p = 1;            ///< of the drawing alone
  int64_t top_k = 0;
};

/// ln(alpha p + (1 - alpha) q), elementwise, of log-probabilities.
at::Tensor mixture_logps(const at::Tensor& teacher_logps, const at::Tensor& student_logps, double teacher_mix);

/// What a rollout's tokens are worth. [B,T] each, 0 where the mask is false.
struct MinillmRewards {
  at::Tensor weights;              ///< q(y) / m(y), m the law that drew it; at most 1 / (1 - alpha)
  at::Tensor rewards;              ///< (ln p - ln q) / reward_scaling, clipped
  at::Tensor reverse_kl_estimate;  ///< [B]: mean over tokens of u - 1 - ln u, u = p/q; of KL(q || p) where q drew them
};
/// logps: [B,T] of the drawn tokens. `sampler_logps`: under the law that drew them; undefined: the mixture.
MinillmRewards minillm_rewards(const at::Tensor& teacher_logps, const at::Tensor& student_logps, const at::Tensor& mask,
                               const MinillmOptions& options, const at::Tensor& sampler_logps = {});

/// Discounted returns, divided by the tokens left, shifted by one place for `exclusive`, whitened over the batch (biased
/// variance). rewards [B,T] -> [B,T].
at::Tensor minillm_advantages(const at::Tensor& rewards, const at::Tensor& mask, const MinillmOptions& options);

/// The loss and its parts. `loss` is differentiable in the student's rows, those of the plain text too.
struct MinillmLoss {
  at::Tensor loss;                               ///< scalar: pg_loss + single_step_loss + lm_coef pretrain_loss
  at::Tensor pg_loss;                            ///< scalar, detached: mean over tokens of max(-A r, -A clip(r))
  at::Tensor single_step_loss;                   ///< scalar, detached: mean over tokens of KL(q || p)
  at::Tensor ratio;                              ///< [B,T], detached: r = q(y) / q_old(y) * weight
  at::Tensor clip_fraction;                      ///< scalar: share of tokens whose r is outside 1 +- clip
  at::Tensor lm_loss, soft_loss, pretrain_loss;  ///< scalars, detached, of the plain text; undefined without
};
/// responses: rows, labels, mask; advantages, old_logps (ln q when they were drawn) and weights [B,T] without gradient. `text`:
/// a batch of plain text, or none.
MinillmLoss minillm_loss(const Responses& responses, const at::Tensor& advantages, const at::Tensor& old_logps,
                         const at::Tensor& weights, const Responses& text, const MinillmOptions& options);

}  // namespace kullback
