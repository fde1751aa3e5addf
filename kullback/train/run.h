#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kullback/report/run_report.h"
#include "kullback/rewards/reward.h"
#include "kullback/train/data.h"
#include "kullback/train/limit.h"
#include "kullback/train/loop.h"
#include "kullback/train/optimizer.h"
#include "kullback/train/reference.h"

namespace kullback {

/// What every command that trains is given besides its data, method, loop and optimiser.
struct RunOptions {
  std::string model;            ///< the policy before training: name, GGUF file or Hugging Face folder
  std::string adapter;          ///< a PEFT adapter that the policy begins with
  std::string reference_model;  ///< compare with this model instead of the policy as it was
  std::string output;           ///< the run folder
  enum class Train { lora, full } train = Train::lora;
  int64_t lora_rank = 16;
  double lora_alpha = 32;
  std::vector<std::string> lora_targets{"all-linear"};
  enum class Weights { float32, bfloat16 } weights = Weights::float32;
  bool recompute = false;     ///< Transformer::recompute
  int64_t head_memory = 128;  ///< MiB that the streaming head may hold, HeadSettings::memory; at least 16
  int64_t samples = 4;        ///< held-out prompts answered before and after
  int64_t sample_tokens = 96;
};
const Options<RunOptions>& run_options();
/// The same where the model that is trained is called a student.
const Options<RunOptions>& student_run_options();

struct RunJob {
  RunOptions run;
  DataOptions data;
  LoopOptions loop;
  OptimizerOptions optimizer;
  LimitOptions limits;
  std::string configuration;  ///< the resolved configuration as TOML, for the run folder
  bool resume = false;        ///< go on in run.output from its newest checkpoint
};

/// How a held-out figure is shown.
struct MeasureText {
  std::string name;  ///< the figure's
  std::string title, unit;
  Better better = Better::neither;
  std::string explanation;
  bool headline = false;
  NumberFormat format = significant(3);
};
/// Those of the distances between policy and reference.
const std::vector<MeasureText>& distance_texts();

/// A held-out prompt that is answered before and after, and what its row holds.
struct ShownPrompt {
  std::vector<Message> prompt;
  std::string chosen, rejected;  ///< may be empty
};

/// What a command brings to a run.
struct RunParts {
  std::string title;
  std::vector<std::string> summary;
  std::vector<MeasureText> measures;  ///< of the task's own figures; the distances follow
  std::vector<std::pair<std::string, int64_t>> rows;
  std::vector<ShownPrompt> prompts;  ///< at most run.samples are answered
  std::function<std::unique_ptr<Task>(const Transformer& policy, Reference reference, Limits limits)> task;
  bool reference = true;  ///< the task compares with the policy as it was
  /// Before the first step, also of a resumed run: makes what the run needs. `folder`: the run's.
  std::function<void(Task& task, const std::filesystem::path& folder, const LoopOptions& loop)> prepare = {};
  /// What the answers to `prompts` are scored by: their mean before and after training is reported.
  std::optional<Reward> score = {};
  /// Adds to held-out figures what follows from them.
  std::function<void(std::map<std::string, Interval>& figures)> derive = {};
  /// Before the report is written: adds what only the task knows to it, to the held-out figures after training, and to
  /// evaluation.json.
  std::function<void(const Task& task, std::map<std::string, Interval>& after, RunReport& report, Json& evaluation)>
      finish = {};
};

struct RunResult {
  LoopResult loop;
  std::string trained;  ///< folder of the adapter or the model; empty when interrupted
  std::string report;   ///< report.html; empty when interrupted
};

/// Checks what can be checked before a model is loaded: the output folder, limits.
void check_run(const RunJob& job);

/// Trains and writes the run folder. `model` becomes the policy; adapters are added as the job says.
RunResult run_training(Model& model, RunJob job, const RunParts& parts);

/// Held-out rows: those of --eval-data, or a share of `training`. `load(path, options)` reads a file.
template <class Data, class Load>
Data held_out_rows(Data& training, const RunJob& job, const Load& load) {
  if (job.data.eval_data.empty())
    return hold_out(training, job.data.eval_fraction, static_cast<uint64_t>(job.loop.seed));
  DataOptions whole = job.data;
  whole.max_rows = 0;
  return load(job.data.eval_data, whole);
}

/// Says in one line what became of the rows; `rows`: what they are, "pairs".
void note_rows(const RowCounts& counts, int64_t held_out, const std::string& rows, int64_t max_length);

/// The rows of a report's table: what happened to the rows of the file.
std::vector<std::pair<std::string, int64_t>> row_texts(const RowCounts& counts, int64_t held_out,
                                                       const std::string& rows);

}  // namespace kullback
