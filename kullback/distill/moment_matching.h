#pragma once

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Adversarial moment matching: critics look for action values on which teacher and student differ, on the teacher's responses
/// and on the student's; the student makes both differences small. Jia 2024, arXiv 2406.02959; the batch forms are derived
/// from the performance-difference identity.
struct MomentMatchingOptions {
  enum class Estimator { sampled, expected };
  enum class Normalize { none, length };
  enum class Critic { learned, best_response };

  double gamma = 1;  ///< discount a counted token
  double on_weight = 1, off_weight = 1;
  double critic_bound = 1;  ///< C: values are C tanh(raw); 0: raw, without a bound
  int64_t critic_steps = 5;
  double critic_lr = 1e-3;
  Estimator on_estimator = Estimator::sampled, off_estimator = Estimator::sampled;
  bool baseline = true;  ///< keep the teacher's expected value in the return: less variance, same expectation
  Normalize normalize = Normalize::none;
  Critic critic = Critic::learned;  ///< best_response: C sign(teacher - student), no network
  int64_t critic_width = 64;
};

/// One batch of responses as a critic sees it.
struct MomentSide {
  Rows student;            ///< [B T]
  Rows teacher = {};       ///< [B T]; may be undefined off-policy with the sampled estimator and a learned critic
  Rows critic = {};        ///< [B T] of raw values, one a token of the vocabulary; unused with best_response
  at::Tensor labels = {};  ///< [B,T]
  at::Tensor mask = {};    ///< [B,T] bool
  bool defined() const { return mask.defined(); }
};

/// Of one side; all detached but `loss` and `ascent`.
struct MomentPart {
  at::Tensor loss;             ///< scalar that the student descends: differentiable in the student alone
  at::Tensor gap;              ///< mean over the B rows of the sums of per_token
  at::Tensor per_token;        ///< [B,T] discounted teacher's value less the student's
  at::Tensor returns;          ///< [B,T] on-policy: what ln pi of the label is weighted with
  at::Tensor total_variation;  ///< [B,T] between the laws; undefined without the teacher's rows
};
/// Responses of the student. `rows_in_step`: rows that means are taken over; 0: this batch's.
MomentPart moment_on_policy(const MomentSide& side, const MomentMatchingOptions& options, double rows_in_step = 0);
/// Responses of the teacher.
MomentPart moment_off_policy(const MomentSide& side, const MomentMatchingOptions& options, double rows_in_step = 0);

/// The gap of one side as the critic climbs it: scalar, differentiable in the critic's rows alone.
at::Tensor moment_gap(const MomentSide& side, bool on_policy, const MomentMatchingOptions& options,
                      double rows_in_step = 0);

/// The bounded critic that finds the largest gap: C sign(teacher - student), of rows of logits [n,V] each.
at::Tensor best_response(const at::Tensor& student_logits, const at::Tensor& teacher_logits, double bound);

}  // namespace kullback
