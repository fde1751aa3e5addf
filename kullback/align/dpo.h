#pragma once

#include <optional>
#include <vector>

#include "kullback/train/preference.h"

namespace kullback {

/// Direct Preference Optimization and the pairwise losses that share its scores. Rafailov et al. 2023, arXiv 2305.18290;
/// the reference's knobs after Liu et al. 2024, arXiv 2407.13709; the other losses' papers stand beside them in dpo.cpp.
struct DpoOptions {
  enum class Reference { policy, none, prior };
  enum class LossType {
    sigmoid,
    robust,
    hinge,
    ipo,
    sigmoid_norm,
    exo_pair,
    nca_pair,
    bco_pair,
    sppo_hard,
    apo_zero,
    apo_down,
    aot,
    aot_unpaired,
    discopop,
    sft
  };

  double beta = 0.1;                        ///< strength of the pull to the reference, > 0
  Reference reference = Reference::policy;  ///< what the rewards are measured against
  std::vector<LossType> loss_type{LossType::sigmoid};
  std::vector<double> loss_weights{1};  ///< one a loss type
  double label_smoothing = 0;           ///< assumed rate of flipped labels, in [0, 0.5)
  bool ipo_length_normalize = true;
  std::optional<double> ld_alpha = {};  ///< weight of the tokens beyond the shorter response's length, in [0, 1]
  double discopop_tau = 0.05;           ///< > 0
};

/// The loss of a batch. Parts: `policy_chosen_sum`, `policy_rejected_sum` [B] (sum of log-probabilities), `logits` [B].
PreferenceLoss dpo_loss(const PreferenceBatch& batch, const DpoOptions& options);

}  // namespace kullback
