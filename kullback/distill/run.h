#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kullback/base/registry.h"
#include "kullback/train/run.h"

namespace kullback {

/// What `kullback distill` is given besides a run's, the data's and the method's own options.
struct DistillOptions {
  std::vector<std::string> teacher;
  std::vector<double> teacher_weight;
  std::string teacher_record;
  std::string student_layers;
  int64_t student_width = 0;      ///< StudentShape::width
  std::string student_tokenizer;  ///< folder; see take_vocabulary
  std::string other_model;
  std::string text_data;
  int64_t response_tokens = 128;
};
const Options<DistillOptions>& distill_options();

/// A run of `kullback distill`: any distillation method.
struct DistillJob : RunJob {
  DistillOptions distill;
  const Method* method = nullptr;
  std::shared_ptr<void> method_options;
};

/// Everything that is wrong with a job's options before any file is read, as an Error.
void check_options(const DistillJob& job);

/// Trains, evaluates and writes the run folder. Everything that can be wrong with the input is found before anything is
/// written.
RunResult run_distillation(DistillJob job);

}  // namespace kullback
