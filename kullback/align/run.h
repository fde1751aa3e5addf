#pragma once

#include <memory>
#include <string>

#include "kullback/base/registry.h"
#include "kullback/train/run.h"

namespace kullback {

/// A run of `kullback align`: any preference method on pairs, or a method that asks a reward on prompts.
struct AlignJob : RunJob {
  const Method* method = nullptr;
  std::shared_ptr<void> method_options;
  bool cache_reference = false;    ///< PreferenceTask::prepare_reference in the cache folder
  int64_t diagnose_gradients = 0;  ///< held-out pairs whose gradients each evaluation looks at: gradient_diagnosis.h
};

/// An Error where the method trains nothing, where its options contradict each other, or where the job asks what it cannot do.
/// Reads no model and no rows: of several runs, all are checked before the first.
void check_method(const AlignJob& job);

/// Trains, evaluates and writes the run folder. Everything that can be wrong with the input is found before anything is
/// written.
RunResult run_alignment(const AlignJob& job);

}  // namespace kullback
