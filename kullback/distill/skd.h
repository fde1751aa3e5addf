#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kullback/distill/kd.h"
#include "kullback/lm/generate_together.h"
#include "kullback/train/distillation.h"

namespace kullback {

/// Speculative knowledge distillation: the student proposes each token of a response, the teacher replaces those that it finds
/// poor, and the student learns from the teacher at the places of that response. Xu et al. 2024, arXiv 2410.11325.
struct SkdOptions {
  enum class Accept { top_k, top_p };
  enum class Objective { forward_kl, reverse_kl, js };

  int64_t top_k = 25;  ///< a proposal stands if the teacher ranks it among so many; 0: none does
  Accept accept = Accept::top_k;
  double accept_top_p =
      0.9;            ///< top_p: or if it is in the teacher's nucleus of this mass, the token that crosses it too
  int64_t block = 5;  ///< proposals that the teacher looks at in one pass; changes the speed alone
  double student_temperature = 0.5, student_top_p = 0.5;  ///< of the proposals; temperature 0: arg-max
  double teacher_temperature = 0.2, teacher_top_p = 0.5;  ///< of the replacements
  Objective divergence = Objective::forward_kl;
  double mixed_ratio = 1;  ///< probability that a step trains on such responses; else on the data's
  bool k_decay = false;    ///< K falls to 1 over a response of the expected length
  int64_t expected_length = 128;
};

/// How many tokens the teacher finds likelier: those of a larger logit, and those of an equal one and a smaller id.
int64_t teacher_rank(std::span<const double> teacher_logits, int32_t token);

/// Whether a proposal stands. Ranks and mass are of the teacher's own law, before temperature and filters.
bool skd_accepts(std::span<const double> teacher_logits, int32_t proposed, int64_t top_k, const SkdOptions& options);

/// K at the teacher's pass of this number, from 0, over a response: top_k less max(ceil(top_k / E), 1) every max(floor(E / top_k), 1)
/// passes, at least 1. Without k_decay: top_k.
int64_t skd_top_k(int64_t pass, const SkdOptions& options);

/// The token that stands: the proposed one, or a draw of the teacher's.
int32_t skd_token(std::span<const double> teacher_logits, int32_t proposed, int64_t pass, double uniform,
                  const SkdOptions& options);

/// Both models' part in the drawing, as generate_together takes it.
Together skd_together(const SkdOptions& options);

/// The divergence at every place of the response, replaced or not; mean over sequences of the mean over their tokens.
KdOptions skd_divergence(const SkdOptions& options);

}  // namespace kullback
