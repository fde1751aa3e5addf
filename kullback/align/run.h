#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kullback/base/registry.h"
#include "kullback/train/data.h"
#include "kullback/train/limit.h"
#include "kullback/train/loop.h"
#include "kullback/train/optimizer.h"

namespace kullback {

/// What `kullback align` is given besides its data, loop and method.
struct AlignOptions {
  std::string method = "dpo";
  std::string model;            ///< the policy before training: name, GGUF file or Hugging Face folder
  std::string adapter;          ///< a PEFT adapter that the policy begins with
  std::string reference_model;  ///< compare with this model instead of the policy as it was
  std::string output;           ///< the run folder
  enum class Train { lora, full } train = Train::lora;
  int64_t lora_rank = 16;
  double lora_alpha = 32;
  std::vector<std::string> lora_targets{"all-linear"};
  int64_t samples = 4;  ///< held-out prompts answered before and after
  int64_t sample_tokens = 96;
};
const Options<AlignOptions>& align_options();

/// All that one run needs.
struct AlignJob {
  AlignOptions align;
  DataOptions data;
  LoopOptions loop;
  OptimizerOptions optimizer;
  LimitOptions limits;
  const Method* method = nullptr;
  std::shared_ptr<void> method_options;
  std::string configuration;  ///< the resolved configuration as TOML, for the run folder
  bool resume = false;        ///< go on in align.output from its newest checkpoint
};

struct AlignResult {
  LoopResult loop;
  std::string trained;  ///< folder of the adapter or the model; empty when interrupted
  std::string report;   ///< report.html; empty when interrupted
};

/// Trains, evaluates and writes the run folder. Everything that can be wrong with the input is found before anything is
/// written.
AlignResult run_alignment(AlignJob job);

}  // namespace kullback
