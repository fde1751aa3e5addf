#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Multi-granularity semantic revision: sequences are corrected at the student's worst token (SCRG), tokens learn a clipped part
/// of the teacher's law (DAC-KL), spans learn how neighbouring laws go together. Liu et al. 2024, arXiv 2407.10068; what its
/// descriptions leave open is derived here.
struct DacKlOptions {
  enum class Bounds { learned, fixed };
  enum class Mask { soft, hard };
  enum class Norm { l2_squared, l2 };
  enum class TeacherToken { argmax, sample };
  enum class Spans { phrases, windows };

  double w_sft = 1, w_dac = 1, w_span = 1;  ///< weights of the three terms
  Bounds bounds = Bounds::learned;  ///< the quantile levels come from a small network, or are `lower` and `upper`
  double lower = 0.4, upper = 0.95;
  std::vector<double> levels = {0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5,
                                0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1};  ///< of the network's features
  int64_t hidden = 64;
  Mask mask = Mask::soft;
  double softness = 0.1;                             ///< nats
  bool high_density = true, target_class = true;     ///< keep the classes between the levels; keep the likeliest always
  double coverage_weight = 0, coverage_floor = 0.9;  ///< guard: weight * mean max(0, floor - kept teacher mass)^2
  Norm norm = Norm::l2_squared;
  TeacherToken teacher_token = TeacherToken::argmax;
  int64_t corrections = 1;
  Spans spans = Spans::phrases;
  int64_t span_length = 4;  ///< windows: tokens of a span
};

/// The network that finds the levels of each row: u = sigmoid(o_0), l = u sigmoid(o_1), o = W2 tanh(W1 f + b1) + b2.
struct LevelNetwork {
  at::Tensor w1, b1, w2, b2;  ///< [H,2m], [H], [2,H], [2]
};

/// DAC-KL of the counted tokens, C of them in row-major order; detached but `loss`, which is differentiable in the student and
/// in the network.
struct DacLoss {
  at::Tensor loss;               ///< scalar: mean over tokens, the guard included
  at::Tensor coverage_penalty;   ///< scalar
  at::Tensor levels;             ///< [C,2] lower and upper
  at::Tensor token_loss;         ///< [C] KL of the kept parts, renormalised
  at::Tensor kept_teacher_mass;  ///< [C]
  at::Tensor effective_classes;  ///< [C] sum of the classes' weights
};
/// rows: [B T]; mask [B,T] bool. The network may be empty with fixed bounds. `tokens_in_step`: see token_weights.
DacLoss dac_kl_loss(const Rows& student, const Rows& teacher, const at::Tensor& mask, const LevelNetwork& network,
                    const DacKlOptions& options, double tokens_in_step = 0);

/// Spans [S,3] of (sequence, first token, last token), ends included, that the counted tokens of each sequence are cut into: one
/// ends with token t if `closes(sequence, first, t)`, and where the counted tokens end. mask: [B,T] bool
at::Tensor spans_where(const at::Tensor& mask,
                       const std::function<bool(int64_t sequence, int64_t first, int64_t t)>& closes);
/// Whether a token with this text is the last of a phrase: it ends in a punctuation mark or with its line.
bool closes_phrase(std::string_view token);

/// Correlation of neighbouring laws inside spans [S,3] of (sequence, first token, last token), ends included: mean over spans
/// of two tokens and more, of the mean over their pairs, of the (squared) distance between p_i p_(i+1) of teacher and student.
/// `length`: T of the rows [B T]. Differentiable in the student; 0 without such a span.
at::Tensor span_loss(const Rows& student, const Rows& teacher, const at::Tensor& spans, int64_t length,
                     DacKlOptions::Norm norm);

/// Where a student's response is corrected: at the token on which the teacher disagrees with the largest KL(teacher || student);
/// the first of equals.
struct Correction {
  at::Tensor token_kl;               ///< [B,T], 0 where the mask is false
  std::vector<int64_t> position;     ///< [B]; -1: the teacher agrees throughout
  std::vector<int64_t> replacement;  ///< [B] the teacher's token there; -1
  std::vector<std::vector<int64_t>>
      prefix;  ///< [B] the response up to the replacement with it; all of it where there is none
};
/// student_tokens, teacher_tokens [B,T] int64: what the student said and what the teacher would at each place.
Correction find_corrections(const Rows& student, const Rows& teacher, const at::Tensor& student_tokens,
                            const at::Tensor& teacher_tokens, const at::Tensor& mask);

}  // namespace kullback
