#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Self-evolution distillation: tokens that the student is far from get the wanted law, a blend of label and teacher, mixed
/// into the student's own. arXiv 2412.15303; where the abstract leaves the rules open they are ours, and options.
struct SelfEvolutionOptions {
  enum class Threshold { mean, quantile, fixed };
  enum class Ratio { difficulty, fixed };
  enum class Mix { student, target, none };
  enum class EasyTarget { blend, teacher };

  double lam = 0.5;        ///< share of the label in the blend
  double temperature = 1;  ///< of both laws
  bool t_squared = true;   ///< times temperature squared
  Threshold threshold = Threshold::mean;
  double gamma = 1;                 ///< of the mean difficulty; which quantile; or the threshold itself
  Ratio ratio = Ratio::difficulty;  ///< difficulty: alpha (1 - exp(-difficulty)); fixed: alpha
  double alpha = 0.5;               ///< largest share of the blend in the proxy
  Mix mix = Mix::student;           ///< the proxy is learned in the student's place, is the target, or is not made
  EasyTarget easy_target = EasyTarget::blend;  ///< of tokens that are not hard
};

/// The wanted law: lam at the label, 1 - lam of the teacher's. Rows of logits [N,V] (temperature done), labels [N] -> ln of
/// it [N,V].
at::Tensor wanted_law(const at::Tensor& teacher_logits, const at::Tensor& labels, double lam);

/// The loss, differentiable in the student, and its parts, detached; [B,T] ones are 0 where the mask is false.
struct SelfEvolutionLoss {
  at::Tensor loss;           ///< scalar: mean over tokens
  at::Tensor difficulty;     ///< [B,T] KL(wanted || student)
  at::Tensor threshold;      ///< scalar; above it a token is hard. 0 where nothing is counted
  at::Tensor hard;           ///< [B,T] bool
  at::Tensor alpha;          ///< [B,T] share of the wanted law in the proxy
  at::Tensor per_token;      ///< [B,T] what is averaged, temperature squared included
  at::Tensor fraction_hard;  ///< scalar
};

/// rows: [B T] of student and teacher; labels [B,T] int64; mask [B,T] bool. The threshold is taken over the tokens of this
/// call. `tokens_in_step`: of all calls that make up a step, see token_weights.
SelfEvolutionLoss self_evolution_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels,
                                      const at::Tensor& mask, const SelfEvolutionOptions& options,
                                      double tokens_in_step = 0);

}  // namespace kullback
