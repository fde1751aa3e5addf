#pragma once

#include <functional>
#include <vector>

#include "kullback/align/gradient_entanglement.h"
#include "kullback/train/data.h"
#include "kullback/train/preference_task.h"

namespace kullback {

/// Which weights' gradients are compared.
enum class DiagnosedParameters { all, lora, head };

/// A model's pairs, one entry each; pairs with an empty response are left out.
struct GradientDiagnosis {
  std::vector<int64_t> lines;  ///< in the data
  PairLogps logps;             ///< [N] each
  PairGradients gradients;
  Entanglement entanglement;
};

/// Two backward passes a pair, one pair at a time. Error where no pair is left, or there is no adapter to compare over.
GradientDiagnosis diagnose_gradients(Transformer policy, Reference reference, const std::vector<PreferencePair>& pairs,
                                     DiagnosedParameters parameters, const EntanglementOptions& options,
                                     const std::function<void(int64_t done)>& progress = {});

/// What one step of the loss that a run trains on does to a pair's two responses, to first order.
struct StepEffect {
  double cosine = 0;                ///< of the gradients g_w, g_l of the two summed log-probabilities
  double condition = 0;             ///< <g_w, g_l> / min(|g_w|^2, |g_l|^2)
  double chosen = 0, rejected = 0;  ///< -<g_w, dL>, -<g_l, dL>: change of each log-probability a unit of learning rate
};

/// `loss`: of this pair alone, differentiable in `weights`. Both responses must have a token.
StepEffect step_effect(const Transformer& policy, const PreferencePair& pair, const at::Tensor& loss,
                       const std::vector<at::Tensor>& weights);

}  // namespace kullback
