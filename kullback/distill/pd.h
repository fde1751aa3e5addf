#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/head.h"
#include "kullback/io/teacher_store.h"

namespace kullback {

/// Pre-training distillation: (1 - alpha) language modelling + alpha distillation from the top of the teacher's rows, which
/// may have been stored. Peng et al. 2025, arXiv 2410.16215.
struct PdOptions {
  enum class Loss { nll, kld, mse, mse_logit };
  enum class Adaptive { none, std, entropy, wttm };
  enum class Schedule { constant, linear_increase, linear_decrease, period, cosine, wsd };
  enum class Source { offline, online };

  double p = 0.95;                 ///< a row is cut where its mass under the full softmax reaches p …
  int64_t k = 50;                  ///< … or after k tokens
  double temperature = 2;          ///< of the teacher's target
  double student_temperature = 1;  ///< of the student's law; no factor temperature squared anywhere
  Loss kd_loss = Loss::kld;
  Adaptive adaptive = Adaptive::none;  ///< temperature, or weight, of each row by itself
  double tau_low = 0.5, tau_high = 2;  ///< entropy: temperature of the flattest and of the sharpest row
  Schedule alpha_schedule = Schedule::wsd;
  std::optional<double> alpha_max = {};  ///< 0.9 offline, 0.1 online
  double alpha_end = 0;
  double alpha_warmup = 0.1, alpha_decay = 0.01;  ///< shares of the steps
  int64_t alpha_period = 100;                     ///< period: steps at the maximum, then as many at the end value
  Source source = Source::offline;                ///< online: the rows were kept while the teacher itself was trained
};

/// The kept tokens of the teacher's rows.
struct PdTarget {
  at::Tensor ids;    ///< [N,K] int64
  at::Tensor logps;  ///< [N,K] log-probabilities under the full softmax; of a stored row, as it was stored
  at::Tensor kept;   ///< [N,K] bool: false where a row keeps fewer than K tokens; what stands there never counts
};

/// The shortest prefix of each row, by falling probability (ties: the lower id), whose mass reaches p, and of it the first k;
/// never a token of probability 0. Temperatures do not matter. Rows that are truncated already: p = 1.
PdTarget pd_truncate(const Rows& teacher, double p, int64_t k);

/// Rows of a target as a store takes them. `label_logps` [N]: undefined where labels are not stored.
std::vector<TeacherRow> pd_rows(const PdTarget& target, const at::Tensor& label_logps = {});

/// [N,K] the teacher's law at temperature, or at each row's own, renormalised over what is kept; 0 elsewhere.
at::Tensor pd_law(const PdTarget& target, const PdOptions& options);
/// [N] what each row's distillation loss is multiplied by: 1 but for wttm.
at::Tensor pd_row_weights(const PdTarget& target, const PdOptions& options);
/// sum_v F_v g_v of [N,K] each, a token of probability 0 adding nothing whatever g is there. [N]
at::Tensor pd_expected(const at::Tensor& law, const at::Tensor& g);

/// Value of alpha (or a learning rate) at step s (from 0) of n.
double pd_schedule(PdOptions::Schedule kind, int64_t step, int64_t steps, double maximum, double end, double warmup,
                   double decay, int64_t period);

struct PdLoss {
  at::Tensor loss;                              ///< scalar: (1 - alpha) lm_loss + alpha kd_loss
  at::Tensor lm_loss, kd_loss, target_entropy;  ///< scalars, detached: means over counted tokens
  at::Tensor kept_mass;                         ///< [C], detached: what the kept tokens hold of the full row
};

/// student: [B T] rows; target: of the counted tokens alone, [C,K]; labels [B,T] int64, mask [B,T] bool. `tokens_in_step`,
/// `weight` [B]: see token_weights.
PdLoss pd_loss(const Rows& student, const PdTarget& target, const at::Tensor& labels, const at::Tensor& mask,
               double alpha, const PdOptions& options, double tokens_in_step = 0, const at::Tensor& weight = {});

}  // namespace kullback
