#include "kullback/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/random.h"
#include "kullback/io/jsonl.h"
#include "kullback/report/progress.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/interrupt.h"

namespace kullback {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

/// Held-out figures with their intervals; logs a row of them.
std::map<std::string, Interval> evaluate(Task& task, const LoopOptions& options, int64_t step, JsonlWriter& metrics) {
  std::optional<Progress> progress;
  const std::vector<Figures> rows = task.evaluate([&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("evaluate", total);
    progress->update(done);
  });
  if (progress) progress->finish();
  if (rows.empty()) return {};
  const auto estimates = bootstrap(rows, static_cast<uint64_t>(options.seed));
  Json row{{"step", step}};
  for (const auto& [name, estimate] : estimates) {
    row["eval/" + name] = number_or_null(estimate.value);
    row["eval/" + name + "_low"] = number_or_null(estimate.low);
    row["eval/" + name + "_high"] = number_or_null(estimate.high);
  }
  metrics.append(row);
  return estimates;
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

Figures train_step(Task& task, AdamW& optimizer, const OptimizerOptions& options, std::span<const int64_t> examples,
                   int64_t batch_size, double learning_rate, bool measure) {
  optimizer.clear_gradients();
  Figures figures;
  for (size_t begin = 0; begin < examples.size(); begin += static_cast<size_t>(batch_size)) {
    const auto batch = examples.subspan(begin, std::min(static_cast<size_t>(batch_size), examples.size() - begin));
    const Figures part = task.accumulate(batch, examples, measure);
    if (!std::isfinite(figure(part, "loss")))
      fail("the loss is {} on {}; the weights were left as they were", figure(part, "loss"), task.describe(batch));
    add(figures, part);
  }
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

LoopResult run_loop(Task& task, AdamW& optimizer, const LoopOptions& options, const OptimizerOptions& optimizer_options,
                    const std::filesystem::path& folder, int64_t first_step) {
  const Schedule schedule(options, task.examples());
  const InterruptGuard guard;
  JsonlWriter metrics(folder / "metrics.jsonl");
  LoopResult result{.steps = first_step, .before = {}, .after = {}};
  const auto begin = Clock::now();
  if (first_step == 0) result.before = evaluate(task, options, 0, metrics);

  const auto training_began = Clock::now();
  const int64_t tokens_before = task.tokens();
  Progress progress("train", schedule.steps(), first_step);
  double kl = std::nan("");
  for (int64_t step = first_step; step < schedule.steps() && !interrupted(); ++step) {
    const bool last = step + 1 == schedule.steps();
    const bool measure = options.measure_every > 0 && ((step + 1) % options.measure_every == 0 || last);
    const double rate = optimizer_options.learning_rate * schedule_factor(optimizer_options, step, schedule.steps());
    const std::vector<int64_t> examples = schedule.step_examples(step);
    const Figures figures = train_step(task, optimizer, optimizer_options, examples, options.batch_size, rate, measure);
    task.after_step(step + 1, schedule.steps());

    Json row{{"step", step + 1}, {"epoch", schedule.epoch(step + 1)}};
    for (const auto& [name, mean] : figures) row["train/" + name] = number_or_null(mean.value());
    row["train/tokens_per_second"] = static_cast<double>(task.tokens() - tokens_before) / seconds_since(training_began);
    metrics.append(row);
    if (figures.contains("kl")) kl = figure(figures, "kl");
    std::vector<std::pair<std::string, double>> shown{{"loss", figure(figures, "loss")}};
    for (const char* name : {"margin", "accuracy"}) {
      if (figures.contains(name)) shown.emplace_back(name, figure(figures, name));
    }
    if (!std::isnan(kl)) shown.emplace_back("KL", kl);
    progress.update(step + 1, shown);

    result.steps = step + 1;
    const bool due = options.save_every > 0 && result.steps % options.save_every == 0;
    if ((due && !last) || (interrupted() && !last)) {
      save_checkpoint(folder, optimizer, Json{{"step", result.steps}}, options.keep);
    }
    if (options.eval_every > 0 && result.steps % options.eval_every == 0 && !last && !interrupted()) {
      evaluate(task, options, result.steps, metrics);
    }
  }
  progress.finish();
  result.interrupted = result.steps < schedule.steps();
  result.seconds = seconds_since(training_began);
  if (!result.interrupted) result.after = evaluate(task, options, result.steps, metrics);
  detail_note(
      fmt::format("the run took {:.1f} s, {:.1f} s of them in training steps", seconds_since(begin), result.seconds));
  return result;
}

}  // namespace kullback
