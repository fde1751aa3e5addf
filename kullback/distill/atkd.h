#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Adaptive teaching: the KL of a token is split at its label; tokens that the teacher is sure of learn from the other tokens
/// alone, the rest from both parts. Zhong et al. 2024, arXiv 2402.11890.
struct AtkdOptions {
  enum class Split { median, topk };
  enum class Setting { forward, reverse };
  enum class SampleSource { gt, student, mix_request, mix_token };

  double lambda = 0.2;  ///< weight of the easy group
  Split split =
      Split::median;  ///< median: tokens from the lower median of uncertainty on are hard; topk: a share of them is
  double hard_fraction = 0.5;          ///< topk: that share
  Setting setting = Setting::forward;  ///< forward: KL(teacher || student) is split; reverse: KL(student || teacher)
  double student_temperature = 1, teacher_temperature = 1;
  SampleSource sample_source = SampleSource::gt;  ///< whose responses are trained on
};

/// The loss, differentiable in the student, and its parts, detached; [B,T] ones are 0 where the mask is false.
struct AtkdLoss {
  at::Tensor loss;                          ///< lambda easy_dkd + (1 - lambda) (hard_tkd + hard_dkd)
  at::Tensor easy_dkd, hard_tkd, hard_dkd;  ///< means over the group's tokens; 0 for an empty group
  at::Tensor easy_tokens, hard_tokens;      ///< scalars: how many
  at::Tensor hard;                          ///< [B,T] bool
  at::Tensor uncertainty;                   ///< [B,T] the teacher's 1 - p(label)
  at::Tensor tkd;                           ///< [B,T] KL of the two-point laws (label, the rest)
  at::Tensor dkd;                           ///< [B,T] KL of the laws of the other tokens, renormalised
  at::Tensor token_mean_kl;  ///< scalar: the plain KL that was split, tkd + (1 - p(label)) dkd, mean over tokens
};

/// rows: [B T] of student and teacher; labels [B,T] int64; mask [B,T] bool. Tokens are split among those of this call, as in
/// the authors' code. `tokens_in_step`: of all calls that make up a step; the loss is scaled to this call's share of them.
AtkdLoss atkd_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                   const AtkdOptions& options, double tokens_in_step = 0);

}  // namespace kullback
