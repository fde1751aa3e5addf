#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "kullback/distill/kd.h"
#include "kullback/train/distillation.h"

namespace kullback {

/// Generalised knowledge distillation: the student learns on its own responses, with the teacher's law at every token as its
/// target, in a divergence that slides from forward to reverse KL. Agarwal et al. 2023, arXiv 2306.13649.
struct GkdOptions {
  enum class Baseline { none, batch_mean };

  double lambda = 0.5;           ///< probability that a step trains on the student's responses
  double beta = 0.5;             ///< forward KL at 0, reverse KL at 1, JSD_beta between
  double temperature = 1;        ///< of both laws in the loss
  double gen_temperature = 1;    ///< of the student's responses
  int64_t max_new_tokens = 128;  ///< of the student's responses
  bool sequence_kd = false;      ///< the teacher's responses in place of the data's
  Reduction reduction = Reduction::sequence_mean;
  std::optional<double> gkd_alpha = {};  ///< with a reward: weight of the divergence; the rest is the reward's
  std::string reward =
      {};  ///< with gkd_alpha: the name of one (rewards/reward.h); empty: ROUGE-L to the data's response
  Baseline baseline = Baseline::batch_mean;  ///< taken from each reward
};

/// Divergence and reduction as kd_loss takes them. JSD's formula is 0 at beta 0 and 1, where forward and reverse KL stand apart.
KdOptions gkd_divergence(const GkdOptions& options);

/// Whose responses a step trains on: the student's where u, uniform in [0,1) and one for the whole step, is below lambda.
ResponseSource gkd_source(double u, const GkdOptions& options);

/// The loss and its parts. `loss` is differentiable in the student.
struct GkdLoss {
  at::Tensor loss;        ///< scalar: kd_loss, or (1 - gkd_alpha) rl_loss + gkd_alpha kd_loss (section 3.2)
  at::Tensor kd_loss;     ///< scalar, detached
  at::Tensor per_token;   ///< [B,T], detached: the divergence at each counted token, 0 elsewhere
  at::Tensor advantages;  ///< [B] reward less baseline; undefined without rewards
  at::Tensor rl_loss;     ///< scalar, detached: -mean over rows of advantage * sum over tokens of ln q(label)
};

/// rows: [B T] of both models; mask [B,T] bool, true at the tokens of a response, its end token among them. rewards [B] of
/// responses that the student drew, with their labels [B,T]; both undefined without gkd_alpha. No gradient goes through the
/// drawing. For `tokens_in_step` and `sequences_in_step` see token_weights.
GkdLoss gkd_loss(const Rows& student, const Rows& teacher, const at::Tensor& mask, const GkdOptions& options,
                 const at::Tensor& labels = {}, const at::Tensor& rewards = {}, double tokens_in_step = 0,
                 double sequences_in_step = 0);

}  // namespace kullback
