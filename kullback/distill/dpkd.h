#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/train/distillation.h"
#include "kullback/train/preference.h"

namespace kullback {

/// Direct preference knowledge distillation: the log-ratio of student and teacher is an implicit reward, by which the teacher's
/// outputs are preferred to the student's own. Li et al. 2024, arXiv 2406.19774.
struct DpkdOptions {
  enum class Form {
    sequence,  ///< whole responses, the paper's objective
    token      ///< the two models' likeliest tokens at each place of a given response, the authors' code
  };
  enum class Preference { sigmoid, ipo, dpop };

  Form form = Form::sequence;
  double beta = 0.1;
  Preference preference_loss = Preference::sigmoid;
  double label_smoothing = 0;     ///< sigmoid: assumed rate of pairs the wrong way round, in [0, 0.5)
  double dpop_lambda = 50;        ///< dpop: price of a chosen output that becomes less likely than under the teacher
  bool reference_free = false;    ///< leave the teacher out of the comparison
  bool length_normalize = false;  ///< sequence: means a token in the place of sums
  double kd_ratio = 0.5;          ///< weight of the preference loss; the rest is cross-entropy on the response at hand
  double lm_coef = 0.5;           ///< weight of the loss on plain text
  int64_t refresh = 1;            ///< sequence: steps that a student's response is kept
};

/// The preference loss and what is logged of it; losses and rewards [B] of pairs, or [B,T] of tokens, 0 where the mask is false.
struct DpkdLoss {
  at::Tensor loss;    ///< scalar, differentiable in the student: mean over pairs or counted tokens
  at::Tensor losses;  ///< detached
  at::Tensor chosen_rewards, rejected_rewards;  ///< detached: beta (ln q - ln p)
  at::Tensor accuracy;                          ///< scalar: share of pairs that the student ranks as wanted
  at::Tensor agreement;                         ///< scalar, token form: share of tokens that both models put first
};

/// chosen: the teacher's response, rejected: the student's; the policy is the student, the reference the teacher.
DpkdLoss dpkd_sequence_loss(const PreferenceBatch& batch, const DpkdOptions& options);

/// rows: [B T]; mask [B,T]. Where both models put the same token first the loss is ln 2 and has no gradient.
DpkdLoss dpkd_token_loss(const Rows& student, const Rows& teacher, const at::Tensor& mask, const DpkdOptions& options,
                         double tokens_in_step = 0);

/// The objective: (1 - kd_ratio) CE(response) + kd_ratio preference + lm_coef (plain text), both others only where there are any.
struct DpkdObjective {
  at::Tensor loss;                    ///< scalar, differentiable
  at::Tensor lm_loss, pretrain_loss;  ///< scalars, detached; undefined without
};
DpkdObjective dpkd_objective(const at::Tensor& preference, const Responses& response, const Responses& text,
                             const DpkdOptions& options);

}  // namespace kullback
