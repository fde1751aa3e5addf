#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"

namespace kullback {

/// Swing distillation: hotter, noisier targets where a token is likely private, so that secrets of the teacher's training text
/// do not reach the student. arXiv 2212.08349; where the abstract leaves the forms open they are ours, and options.
struct SwingOptions {
  enum class Schedule { linear, step };
  enum class Noise { laplace, gaussian, none };
  enum class Where { all, private_tokens };
  enum class Projection { clip, simplex };
  enum class StudentTemperature { same, one };
  enum class Privacy { given, digits, memory, constant };

  Schedule schedule = Schedule::linear;  ///< linear: t_min + (t_max - t_min) privacy; step: t_max from the threshold on
  double t_min = 1, t_max = 8, threshold = 0.5;
  Noise noise = Noise::laplace;
  double epsilon = 10, sensitivity = 1, delta = 1e-5;  ///< the noise's scale is sensitivity / epsilon
  Where noise_where = Where::all;                      ///< private: times the token's privacy
  int64_t noise_support = 0;                           ///< noise only on so many of the likeliest tokens; 0: on all
  Projection projection = Projection::clip;            ///< how noisy numbers become a law again
  StudentTemperature student_temperature = StudentTemperature::same;
  bool t_squared = false;
  double lam = 0.5;          ///< weight of the divergence; the rest is cross-entropy on the labels
  bool ce_guard = false;     ///< cross-entropy of a token counts 1 - privacy
  bool freeze_noise = true;  ///< the same noise at every visit of a token
  Privacy privacy = Privacy::digits;
  double privacy_constant = 1, margin = 0, width = 1;  ///< constant: of every token; memory: see privacy_score
};

/// Standard noise (uniform in [0,1) for Laplace, normal for Gaussian) of tokens `ids` [n,m] at the places [n] of a batch -> [n,m].
using SwingNoise = std::function<at::Tensor(const at::Tensor& places, const at::Tensor& ids)>;

/// Temperature of each token, of its privacy in [0,1].
at::Tensor swing_temperature(const at::Tensor& privacy, const SwingOptions& options);

struct SwingTargets {
  at::Tensor clean, noisy;  ///< [n,V] laws
};
/// Rows of the teacher's logits [n,V], privacy [n], their places in the batch [n] (for the noise).
SwingTargets swing_targets(const at::Tensor& teacher_logits, const at::Tensor& privacy, const at::Tensor& places,
                           const SwingNoise& noise, const SwingOptions& options);

/// The loss, differentiable in the student, and its parts, detached.
struct SwingLoss {
  at::Tensor loss;         ///< lam kd + (1 - lam) ce
  at::Tensor kd, ce;       ///< scalars
  at::Tensor temperature;  ///< [B,T]
  at::Tensor
      per_token;  ///< [B,T] KL(noisy target || student), times the temperature squared if so; 0 where not counted
};

/// rows: [B T] of student and teacher; labels [B,T] int64; mask [B,T] bool; privacy [B,T] in [0,1]. `noise` may be empty with
/// noise none. `tokens_in_step`: see token_weights.
SwingLoss swing_loss(const Rows& student, const Rows& teacher, const at::Tensor& labels, const at::Tensor& mask,
                     const at::Tensor& privacy, const SwingNoise& noise, const SwingOptions& options,
                     double tokens_in_step = 0);

/// sigmoid((ln p_teacher - ln p_public - margin) / width): large where the teacher knows a token far better than a public model.
at::Tensor privacy_score(const at::Tensor& teacher_logps, const at::Tensor& public_logps, double margin, double width);

/// How far a planted secret stands out among R candidates, by their log-probabilities [R].
struct CanaryExposure {
  int64_t rank = 1;     ///< 1 + candidates strictly likelier than the inserted one
  double exposure = 0;  ///< log2 R - log2 rank
};
CanaryExposure canary_exposure(const at::Tensor& logps, int64_t inserted);

}  // namespace kullback
