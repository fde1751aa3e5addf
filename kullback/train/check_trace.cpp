// Fixtures of kind "training-trace": the logged steps of a reference trainer, repeated by our own step on the same batches.
#include <algorithm>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/lm/model.h"
#include "kullback/train/check_kinds.h"
#include "kullback/train/preference_task.h"

namespace kullback {
namespace {

/// How far a number of a step may lie from the reference trainer's: float32 kernels differ, and differences grow with steps.
struct Allowed {
  const char* theirs;
  const char* ours;
  double absolute, relative;
};
constexpr Allowed allowed[] = {
    {"loss", "loss", 2e-3, 0},
    {"grad_norm", "grad_norm", 0, 0.01},
    {"logps/chosen", "logps/chosen", 0.05, 0},
    {"logps/rejected", "logps/rejected", 0.05, 0},
    {"rewards/chosen", "rewards/chosen", 0.01, 0},
    {"rewards/rejected", "rewards/rejected", 0.01, 0},
    {"rewards/margins", "margin", 0.01, 0},
};

Sequence sequence_of(const Json& ids, const Json& attention, const Json& completion, const std::string& where) {
  Sequence sequence;
  int64_t first = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (attention[i].get<int>() == 0) continue;
    const bool counted = completion[i].get<int>() != 0;
    if (counted && first < 0) first = static_cast<int64_t>(sequence.ids.size());
    if (!counted && first >= 0) fail("{}: a completion with a gap", where);
    sequence.ids.push_back(ids[i].get<int32_t>());
  }
  if (first < 0) first = static_cast<int64_t>(sequence.ids.size());
  sequence.response_begin = first;
  return sequence;
}

PreferenceData trace_data(const Json& fixture, const std::string& file) {
  PreferenceData data{.path = file, .pairs = {}, .counts = {}};
  int64_t number = 0;
  for (const Json& batch : fixture.at("batches")) {
    const Json &ids = batch.at("input_ids"), &attention = batch.at("attention_mask"),
               &completion = batch.at("completion_mask");
    if (ids.size() % 2 != 0 || attention.size() != ids.size() || completion.size() != ids.size())
      fail("{}: batch {} is not made of pairs", file, number);
    const size_t pairs = ids.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      PreferencePair pair;
      pair.line = ++number;
      pair.chosen = sequence_of(ids[i], attention[i], completion[i], file);
      pair.rejected = sequence_of(ids[pairs + i], attention[pairs + i], completion[pairs + i], file);
      data.pairs.push_back(std::move(pair));
    }
  }
  return data;
}

CheckResult compare_step(const Figures& ours, const Json& theirs, int64_t step) {
  CheckResult result{
      .name = fmt::format("step {}", step), .passed = true, .largest_difference = 0, .tolerance = 1, .at = ""};
  for (const Allowed& a : allowed) {
    if (!theirs.contains(a.theirs)) continue;
    const double expected = theirs[a.theirs].get<double>(), difference = std::fabs(ours.at(a.ours).value() - expected);
    const double tolerance = std::max(a.absolute, a.relative * std::fabs(expected));
    if (difference / tolerance > result.largest_difference / result.tolerance || result.at.empty()) {
      result.largest_difference = difference, result.tolerance = tolerance;
      result.at = fmt::format("{} {:.6g}, expected {:.6g}", a.theirs, ours.at(a.ours).value(), expected);
    }
    if (!(difference <= tolerance)) result.passed = false;
  }
  return result;
}

}  // namespace

CheckReport check_training_trace(const Json& fixture, const std::filesystem::path& file,
                                 const std::string& model_name) {
  Model model = fixture_model(fixture, file, model_name);
  const Method& method = find_method(fixture.at("method").get<std::string>(), Family::alignment);
  const std::shared_ptr<void> options = method.options->defaults();
  if (fixture.contains("options")) method.options->assign(options.get(), fixture["options"], file.string());

  // As the reference trainer was set: full weights, AdamW without weight decay, gradients clipped at 1.
  model.transformer.set_trainable(true);
  const Transformer reference = model.transformer.clone();
  PreferenceTask task(model.transformer, {&reference, AdapterUse::on}, method, options.get(),
                      trace_data(fixture, file.string()), PreferenceData{.path = {}, .pairs = {}, .counts = {}}, {});
  const OptimizerOptions settings;
  Optimizer optimizer(model.transformer.trainable(), settings);

  CheckReport report{.file = file.string(), .kind = "training-trace", .results = {}};
  const Json& log = fixture.at("log");
  const Json& batches = fixture.at("batches");
  int64_t example = 0;
  for (size_t step = 0; step < std::min(log.size(), batches.size()); ++step) {
    std::vector<int64_t> examples(batches[step].at("input_ids").size() / 2);
    for (int64_t& e : examples) e = example++;
    const Figures ours = train_step(task, optimizer, settings, examples, static_cast<int64_t>(examples.size()),
                                    log[step].at("learning_rate").get<double>(), /*measure=*/false);
    report.results.push_back(compare_step(ours, log[step], static_cast<int64_t>(step) + 1));
  }
  return report;
}

}  // namespace kullback
