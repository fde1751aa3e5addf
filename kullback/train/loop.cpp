#include "kullback/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/random.h"
#include "kullback/base/suggest.h"
#include "kullback/io/jsonl.h"
#include "kullback/report/progress.h"
#include "kullback/report/tensorboard.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/interrupt.h"
#include "kullback/train/processes.h"

namespace kullback {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

/// The run's log: rows of metrics.jsonl, and the same for TensorBoard. What the clock says goes into a file of its own, so
/// that metrics.jsonl is the same, byte for byte, whenever and in however many pieces a run is made.
class Log {
 public:
  /// Of several processes the first one writes.
  explicit Log(const std::filesystem::path& folder) {
    if (processes().first()) files_.emplace(folder);
  }
  void append(int64_t step, const Json& row) {
    if (files_) files_->append(files_->metrics, step, row);
  }
  void append_timing(int64_t step, const Json& row) {
    if (files_) files_->append(files_->timings, step, row);
  }

 private:
  struct Files {
    explicit Files(const std::filesystem::path& folder)
        : metrics(folder / "metrics.jsonl"), timings(folder / "timings.jsonl"), tensorboard(folder / "tensorboard") {}
    void append(JsonlWriter& file, int64_t step, const Json& row) {
      file.append(row);
      for (const auto& [name, value] : row.items()) {
        if (name != "step" && value.is_number()) tensorboard.scalar(name, step, value.get<double>());
      }
      tensorboard.flush();
    }

    JsonlWriter metrics, timings;
    TensorboardWriter tensorboard;
  };
  std::optional<Files> files_;
};

/// Watches a held-out figure: keeps the best weights and says when to stop.
class EarlyStop {
 public:
  explicit EarlyStop(const LoopOptions& options) : options_(options) {}

  /// True when training should stop. Saves the weights where they are the best so far.
  bool observe(const std::map<std::string, Interval>& figures, int64_t step, const std::filesystem::path& folder,
               const Optimizer& optimizer) {
    if (options_.stop_metric.empty() || figures.empty()) return false;
    const auto found = figures.find(options_.stop_metric);
    if (found == figures.end()) {
      std::vector<std::string> known;
      for (const auto& [name, value] : figures) known.push_back(name);
      fail("option --stop-metric: no held-out figure \"{}\"{}; there are {}", options_.stop_metric,
           suggestion(options_.stop_metric, known), listing(known));
    }
    const double value = options_.stop_goal == LoopOptions::Goal::lower ? found->second.value : -found->second.value;
    if (step > 0 && value < best_) {
      best_ = value, since_ = 0, best_step_ = step;
      if (processes().first()) save_checkpoint(folder / "best", optimizer, Json{{"step", step}}, 1);
      return false;
    }
    return step > 0 && ++since_ >= options_.stop_patience;
  }
  int64_t best_step() const { return best_step_; }

  Json state() const { return {best_step_ > 0 ? Json(best_) : Json(), since_, best_step_}; }
  void restore(const Json& state) {
    if (!state.is_array()) return;
    if (!state[0].is_null()) best_ = state[0].get<double>();
    since_ = state[1].get<int64_t>(), best_step_ = state[2].get<int64_t>();
  }

 private:
  const LoopOptions& options_;
  double best_ = unbounded;
  int64_t since_ = 0, best_step_ = 0;
};

/// Held-out figures with their intervals.
std::map<std::string, Interval> evaluate(Task& task, const LoopOptions& options) {
  std::optional<Progress> progress;
  const std::vector<Figures> rows = task.evaluate([&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("evaluate", total);
    progress->update(done);
  });
  if (progress) progress->finish();
  return rows.empty() ? std::map<std::string, Interval>{} : bootstrap(rows, static_cast<uint64_t>(options.seed));
}

void log_evaluation(const std::map<std::string, Interval>& estimates, int64_t step, Log& log) {
  if (estimates.empty()) return;
  Json row{{"step", step}};
  for (const auto& [name, estimate] : estimates) {
    row["eval/" + name] = number_or_null(estimate.value);
    row["eval/" + name + "_low"] = number_or_null(estimate.low);
    row["eval/" + name + "_high"] = number_or_null(estimate.high);
  }
  log.append(step, row);
}

/// The figures, and a row of them in the log.
std::map<std::string, Interval> evaluate(Task& task, const LoopOptions& options, int64_t step, Log& log) {
  auto estimates = evaluate(task, options);
  log_evaluation(estimates, step, log);
  return estimates;
}

/// Scales the whole update until the limits hold on held-out rows, or as far as that is sensible: an update is never made
/// more than half as long again as training has left it. Gives back the scale; `figures` become those of the scaled weights.
double settle(Task& task, const LoopOptions& options, const std::function<void(double)>& rescale,
              std::map<std::string, Interval>& figures) {
  const double longest = std::log(1.5);
  double scale = 0, slope = -1;  // logarithm of the scale; how the wanted factor's logarithm changes with it
  double wanted = std::log(task.settling_factor());
  for (int round = 0; round < 6 && wanted != 0; ++round) {
    const double step = std::min(longest - scale, -wanted / slope);
    if (step == 0) break;
    rescale(std::exp(step));
    scale += step;
    figures = evaluate(task, options);
    const double now = std::log(task.settling_factor());
    slope = std::clamp((now - wanted) / step, -3.0, -0.2);  // -1 where a divergence goes with the update's square
    wanted = now;
  }
  return std::exp(scale);
}

double figure(const Figures& figures, const std::string& name) {
  const auto found = figures.find(name);
  return found == figures.end() ? std::nan("") : found->second.value();
}

}  // namespace

const Options<LoopOptions>& loop_options() {
  static const auto options =
      Options<LoopOptions>()
          .option("epochs", &LoopOptions::epochs, positive, "passes over the training rows")
          .option("max-steps", &LoopOptions::max_steps, at_least(0),
                  "stop after so many steps of the optimiser; 0: after the epochs")
          .option("batch-size", &LoopOptions::batch_size, at_least(1), "rows (pairs) a forward and backward pass")
          .option("accumulation", &LoopOptions::accumulation, at_least(1),
                  "passes whose gradients are added up for one step")
          .option("eval-every", &LoopOptions::eval_every, at_least(0),
                  "steps between evaluations on held-out rows; 0: before and after only")
          .option("measure-every", &LoopOptions::measure_every, at_least(0),
                  "steps between exact KL measurements on the training batch; 0: never")
          .option("save-every", &LoopOptions::save_every, at_least(0),
                  "steps between checkpoints; 0: only when interrupted")
          .option("keep", &LoopOptions::keep, at_least(1), "checkpoints kept")
          .option("stop-metric", &LoopOptions::stop_metric,
                  "stop when this held-out figure (loss, accuracy, kl, ...) gets no better, and take the weights where "
                  "it was best; needs --eval-every")
          .option("stop-goal", &LoopOptions::stop_goal,
                  {{"lower", LoopOptions::Goal::lower}, {"higher", LoopOptions::Goal::higher}},
                  "what is better of --stop-metric")
          .option("stop-patience", &LoopOptions::stop_patience, at_least(1), "evaluations without a better one")
          .option("seed", &LoopOptions::seed, at_least(0),
                  "of the row order, the adapter's first values and the intervals");
  return options;
}

Schedule::Schedule(const LoopOptions& options, int64_t examples)
    : options_(options), examples_(examples), per_step_(std::min(options.batch_size * options.accumulation, examples)) {
  const double all = std::ceil(options.epochs * static_cast<double>(examples) / static_cast<double>(per_step_) - 1e-9);
  steps_ = std::max<int64_t>(1, static_cast<int64_t>(all));
  if (options.max_steps > 0) steps_ = std::min(steps_, options.max_steps);
}

double Schedule::epoch(int64_t step) const {
  return static_cast<double>(step * per_step_) / static_cast<double>(examples_);
}

std::vector<int64_t> Schedule::step_examples(int64_t step) const {
  std::vector<int64_t> chosen;
  int64_t shuffled_epoch = -1;
  std::vector<int64_t> order(static_cast<size_t>(examples_));
  for (int64_t i = step * per_step_; i < (step + 1) * per_step_; ++i) {
    const int64_t pass = i / examples_;  // a step that begins in one pass may end in the next
    if (pass != shuffled_epoch) {
      for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int64_t>(k);
      RandomStream(static_cast<uint64_t>(options_.seed), "order", static_cast<uint64_t>(pass)).shuffle(order);
      shuffled_epoch = pass;
    }
    chosen.push_back(order[static_cast<size_t>(i % examples_)]);
  }
  return chosen;
}

Figures train_step(Task& task, Optimizer& optimizer, const OptimizerOptions& options, std::span<const int64_t> examples,
                   int64_t batch_size, double learning_rate, bool measure) {
  optimizer.clear_gradients();
  Figures figures;
  const auto [first, last] = processes().share(std::ssize(examples));
  for (int64_t begin = first; begin < last; begin += batch_size) {
    const int64_t count = std::min(batch_size, last - begin);
    const auto batch = examples.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    if (begin + count == last) optimizer.gradients().begin();
    const Figures part = task.accumulate(batch, examples, measure);
    if (!std::isfinite(figure(part, "loss")))
      fail("the loss is {} on {}; the weights were left as they were", figure(part, "loss"), task.describe(batch));
    add(figures, part);
  }
  optimizer.gradients().finish();
  figures = processes().sum(figures);
  const double norm = optimizer.gradient_norm();
  if (!std::isfinite(norm))
    fail("the gradient's norm is {} on {}; the weights were left as they were", norm, task.describe(examples));
  if (options.max_grad_norm > 0 && norm > options.max_grad_norm)
    optimizer.scale_gradients(options.max_grad_norm / norm);
  optimizer.step(learning_rate);
  figures["grad_norm"] = {norm, 1};
  figures["learning_rate"] = {learning_rate, 1};
  return figures;
}

LoopResult run_loop(Task& task, Optimizer& optimizer, const LoopOptions& options,
                    const OptimizerOptions& optimizer_options, const std::filesystem::path& folder, int64_t first_step,
                    const Json& resumed, const std::function<void(double)>& rescale) {
  const Schedule schedule(options, task.examples());
  const InterruptGuard guard;
  bool asked_to_stop = false;  // all processes agree on it, once a step
  Log log(folder);
  EarlyStop stop(options);
  if (!resumed.is_null()) {
    task.restore(resumed.value("task", Json()));
    load_kept(folder, resumed, task.kept());
    stop.restore(resumed.value("stop", Json()));
  }
  LoopResult result{.steps = first_step, .before = {}, .after = {}};
  const auto begin = Clock::now();
  if (first_step == 0) {
    result.before = evaluate(task, options, 0, log);
    stop.observe(result.before, 0, folder, optimizer);
  }

  const auto training_began = Clock::now();
  const int64_t tokens_before = task.tokens();
  Progress progress("train", schedule.steps(), first_step);
  double kl = std::nan("");
  bool stopped = false;
  const auto evaluation_due = [&](int64_t step) {
    return options.eval_every > 0 && step > 0 && step % options.eval_every == 0 && step < schedule.steps();
  };
  const auto look = [&](int64_t step) {
    if (!stop.observe(evaluate(task, options, step, log), step, folder, optimizer)) return;
    progress.message(fmt::format("{} has not improved for {} evaluations: training stops", options.stop_metric,
                                 options.stop_patience));
    stopped = true;
  };
  // A checkpoint is written before the evaluation of its step, which a resumed run has to make up for.
  if (evaluation_due(first_step)) look(first_step);
  for (int64_t step = first_step; step < schedule.steps() && !asked_to_stop && !stopped; ++step) {
    const bool last = step + 1 == schedule.steps();
    const bool measure = options.measure_every > 0 && ((step + 1) % options.measure_every == 0 || last);
    const double rate = optimizer_options.learning_rate * schedule_factor(optimizer_options, step, schedule.steps());
    const std::vector<int64_t> examples = schedule.step_examples(step);
    task.before_step(step, schedule.steps(), examples);
    Figures figures = train_step(task, optimizer, optimizer_options, examples, options.batch_size, rate, measure);
    task.after_step(step + 1, schedule.steps(), figures);

    Json row{{"step", step + 1}, {"epoch", schedule.epoch(step + 1)}};
    for (const auto& [name, mean] : figures) row["train/" + name] = number_or_null(mean.value());
    log.append(step + 1, row);
    Json timing{{"step", step + 1},
                {"train/tokens_per_second",
                 static_cast<double>(task.tokens() - tokens_before) / seconds_since(training_began)}};
    for (const auto& [name, value] : task.timings()) timing["train/" + name] = number_or_null(value);
    log.append_timing(step + 1, timing);
    if (figures.contains("kl")) kl = figure(figures, "kl");
    std::vector<std::pair<std::string, double>> shown{{"loss", figure(figures, "loss")}};
    for (const char* name : {"margin", "accuracy"}) {
      if (figures.contains(name)) shown.emplace_back(name, figure(figures, name));
    }
    if (!std::isnan(kl)) shown.emplace_back("KL", kl);
    progress.update(step + 1, shown);

    result.steps = step + 1;
    asked_to_stop = processes().any(interrupted());
    const bool due = options.save_every > 0 && result.steps % options.save_every == 0;
    if ((due || asked_to_stop) && !last && processes().first()) {
      const std::vector<NamedTensor> kept = task.kept();
      save_checkpoint(folder, optimizer, Json{{"step", result.steps}, {"task", task.state()}, {"stop", stop.state()}},
                      options.keep, kept);
    }
    if (evaluation_due(result.steps) && !asked_to_stop) look(result.steps);
  }
  progress.finish();
  result.interrupted = result.steps < schedule.steps() && !stopped;
  result.seconds = seconds_since(training_began);
  if (!result.interrupted) {
    result.after = evaluate(task, options, result.steps, log);
    stop.observe(result.after, result.steps, folder, optimizer);
    result.best_step = stop.best_step();
    if (result.best_step > 0 && result.best_step < result.steps) {
      processes().wait_for_all();  // until the first has written them
      load_checkpoint(folder / "best", optimizer);
      note(fmt::format("the weights of step {}, where {} was best, are taken", result.best_step, options.stop_metric));
      result.after = evaluate(task, options, result.best_step, log);
    }
    if (rescale) result.scale = settle(task, options, rescale, result.after);
    if (result.scale != 1) {
      note(fmt::format("the whole update is scaled by {:.3f}, so that what --limit bounds ends at its bound",
                       result.scale));
      log_evaluation(result.after, result.steps, log);
    }
  }
  detail_note(
      fmt::format("the run took {:.1f} s, {:.1f} s of them in training steps", seconds_since(begin), result.seconds));
  return result;
}

}  // namespace kullback
