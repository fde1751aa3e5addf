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

}  // namespace kullback
