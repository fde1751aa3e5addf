#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kullback/base/options.h"
#include "kullback/train/figures.h"
#include "kullback/train/optimizer.h"

namespace kullback {

/// How long a run goes on, in what portions, and how often it looks at itself.
struct LoopOptions {
  double epochs = 1;
  int64_t max_steps = 0;         ///< 0: as many as the epochs need
  int64_t batch_size = 4;        ///< examples a forward and backward pass
  int64_t accumulation = 1;      ///< passes a step of the optimiser
  int64_t eval_every = 0;        ///< steps; 0: before and after only
  int64_t measure_every = 5;     ///< steps between exact KL measurements on the training batch; 0: never
  int64_t save_every = 0;        ///< steps between checkpoints; 0: only when interrupted
  int64_t keep = 2;              ///< checkpoints kept
  std::string stop_metric = {};  ///< stop when this held-out figure gets no better; empty: never
  enum class Goal { lower, higher } stop_goal = Goal::lower;
  int64_t stop_patience = 3;  ///< evaluations without a better one
  int64_t seed = 0;           ///< of the data order, the adapter's initial values and the intervals
};
const Options<LoopOptions>& loop_options();

/// What the loop trains. Examples are numbered from 0.
class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t examples() const = 0;
  /// Where examples come from, for messages: "lines 3 and 17 of pairs.jsonl".
  virtual std::string describe(std::span<const int64_t> examples) const = 0;
  /// Before the batches of step `step` (from 0) of `steps` are accumulated: draws what the step needs.
  virtual void before_step(int64_t step, int64_t steps, std::span<const int64_t> examples) {
    (void)step, (void)steps, (void)examples;
  }
  /// Adds the gradient of a batch, a subspan of the step `whole`, and gives back its figures, among them "loss" (sums
  /// over the batch with their counts). `measure`: exact divergences from the reference too.
  virtual Figures accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) = 0;
  /// Figures of every held-out row. Empty when there is no held-out data.
  virtual std::vector<Figures> evaluate(const std::function<void(int64_t done, int64_t total)>& progress) = 0;
  /// Tokens that went through the model so far.
  virtual int64_t tokens() const = 0;
  /// After the optimiser has taken step `step` (from 1) of `steps`, with the step's figures: moves what moves with training
  /// but is no weight, and may add to the figures.
  virtual void after_step(int64_t step, int64_t steps, Figures& figures) { (void)step, (void)steps, (void)figures; }
  /// By what the whole update should be scaled after training, going by the last evaluation (Limits::settling_factor).
  virtual double settling_factor() const { return 1; }
  /// What the clock says of the last step, by name: for timings.jsonl, since metrics.jsonl is to be the same in every run.
  virtual std::map<std::string, double> timings() const { return {}; }
  /// What of that a checkpoint has to hold.
  virtual Json state() const { return {}; }
  virtual void restore(const Json&) {}
  /// Tensors of the task's own that change while it runs: checkpoints hold them and put them back. The same names each time,
  /// once state has been restored.
  virtual std::vector<NamedTensor> kept() { return {}; }
};

/// The run as the loop goes through it: which batches make step k is a function of the options alone, so that a resumed
/// run sees what a run never stopped would have seen.
class Schedule {
 public:
  Schedule(const LoopOptions& options, int64_t examples);
  int64_t steps() const { return steps_; }
  int64_t examples_per_step() const { return per_step_; }
  double epoch(int64_t step) const;
  std::vector<int64_t> step_examples(int64_t step) const;

 private:
  LoopOptions options_;
  int64_t examples_, per_step_, steps_;
};

/// One step: accumulates the batches of this process's share of the examples, sums gradients and figures over all
/// processes, clips, updates. Figures with "loss", "grad_norm" and "learning_rate" among them.
/// An Error that names the batch when the loss or the gradient is not finite; the weights are then untouched.
Figures train_step(Task& task, Optimizer& optimizer, const OptimizerOptions& options, std::span<const int64_t> examples,
                   int64_t batch_size, double learning_rate, bool measure);

struct LoopResult {
  int64_t steps = 0;
  bool interrupted = false;
  double scale = 1;       ///< of the whole update, after training, so that limits hold
  int64_t best_step = 0;  ///< where stop_metric was best and whose weights were taken in the end; 0: there is none
  double seconds = 0;
  std::map<std::string, Interval> before, after;  ///< held-out figures
};

/// Trains from `first_step` on, logging to `folder`/metrics.jsonl and showing progress. Held-out figures are measured before
/// the first step (`before`; a resumed run does not measure them again) and after the last. `resumed`: the state of the
/// checkpoint that `first_step` is from. `rescale(s)` scales what training has done to the weights by s; where it is given,
/// the task's settling_factor is followed after the last step.
LoopResult run_loop(Task& task, Optimizer& optimizer, const LoopOptions& options,
                    const OptimizerOptions& optimizer_options, const std::filesystem::path& folder,
                    int64_t first_step = 0, const Json& resumed = {}, const std::function<void(double)>& rescale = {});

}  // namespace kullback
