#include "kullback/train/run.h"

#include <sys/resource.h>

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/divergence/head.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/report/progress.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/processes.h"
#include "kullback/train/weight_average.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

/// The frozen model that a run compares with, kept alive beside the task that uses it.
struct OwnedReference {
  std::optional<Transformer> other;
  AdapterUse use = AdapterUse::on;
  Reference of(const Transformer& policy) const { return {other ? &*other : &policy, use}; }
};

void prepare_policy(Model& model, const RunJob& job) {
  const RunOptions& o = job.run;
  if (o.weights == RunOptions::Weights::bfloat16) model.transformer = model.transformer.clone(at::kBFloat16);
  model.transformer.recompute = o.recompute;
  if (!o.adapter.empty()) load_adapter(model.transformer, o.adapter);
  if (o.train == RunOptions::Train::full) {
    if (!o.adapter.empty()) merge_lora(model.transformer);
    return model.transformer.set_trainable(true);
  }
  if (o.adapter.empty()) {
    add_lora(model.transformer, {.rank = o.lora_rank, .alpha = o.lora_alpha, .targets = o.lora_targets},
             static_cast<uint64_t>(job.loop.seed));
  }
}

/// With a fresh adapter the policy as it was is the policy with its adapter off: no second copy of the weights. Full weights
/// move and an adapter given at the start would be lost when switched off, so those take a copy.
OwnedReference make_reference(const Model& policy, const RunOptions& o) {
  if (!o.reference_model.empty()) {
    Model other = load_model(o.reference_model);
    if (other.config().vocabulary_size != policy.config().vocabulary_size) {
      fail("option --reference-model: {} has a vocabulary of {}, the policy {}; they must share a tokenizer",
           o.reference_model, other.config().vocabulary_size, policy.config().vocabulary_size);
    }
    return {.other = std::move(other.transformer), .use = AdapterUse::on};
  }
  if (o.train == RunOptions::Train::lora && o.adapter.empty()) return {.other = std::nullopt, .use = AdapterUse::off};
  return {.other = policy.transformer.clone(), .use = AdapterUse::on};
}

/// Answers to held-out prompts.
struct Answers {
  std::vector<std::string> texts;
  std::vector<int64_t> tokens;  ///< of each

  Json mean_length() const {
    if (tokens.empty()) return {};
    return static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0})) /
           static_cast<double>(tokens.size());
  }
};

Answers answers(const Model& model, const std::vector<ShownPrompt>& shown, const RunJob& job) {
  std::vector<std::vector<int32_t>> prompts;
  for (const ShownPrompt& one : shown) prompts.push_back(encode_prompt(model, one.prompt, job.data.text_format));
  if (prompts.empty()) return {};
  GenerationOptions options{.sampling = {.temperature = 0},
                            .max_new_tokens = job.run.sample_tokens,
                            .stop_ids = model.generation.stop_ids,
                            .streams = {}};
  Progress progress("sample", std::ssize(prompts) * options.max_new_tokens);
  int64_t drawn = 0;
  const auto generated = generate(model.transformer, prompts, options, [&](size_t, int32_t) {
    progress.update(++drawn);
    return true;
  });
  progress.finish();
  Answers result;
  for (const Generated& one : generated) {
    result.tokens.push_back(std::ssize(one.ids));
    result.texts.push_back(model.text().decode_text(one.ids, /*skip_special=*/true) + (one.stopped ? "" : " …"));
  }
  return result;
}

Json interval_json(const Interval& interval) { return Json::array({interval.value, interval.low, interval.high}); }

/// The answers of before the first step, so that a resumed run can report them.
void write_before(const fs::path& folder, const Answers& answers) {
  write_file(folder / "before.json", Json{{"samples", answers.texts}, {"tokens", answers.tokens}}.dump(1) + "\n");
}

Answers read_before(const fs::path& folder) {
  const Json json = read_json(folder / "before.json");
  return {json.at("samples").get<std::vector<std::string>>(), json.at("tokens").get<std::vector<int64_t>>()};
}

/// The held-out figures of before the first step, as they were logged.
std::map<std::string, Interval> logged_before(const fs::path& folder) {
  std::map<std::string, Interval> figures;
  read_jsonl(folder / "metrics.jsonl", [&](int64_t, const Json& row) {
    if (row.value("step", int64_t{-1}) != 0) return;
    for (const auto& [key, value] : row.items()) {
      if (!key.starts_with("eval/") || !row.contains(key + "_low")) continue;
      const auto number = [&](const std::string& name) {
        return row.at(name).is_number() ? row.at(name).get<double>() : std::nan("");
      };
      figures[key.substr(5)] = {number(key), number(key + "_low"), number(key + "_high")};
    }
  });
  return figures;
}

/// Leaves only what was logged up to the checkpoint of `step`; all after it, the evaluation of that step among it, will be
/// made again. A last line that a killed run has left unfinished goes too.
void cut_log(const fs::path& file, int64_t step) {
  if (!fs::exists(file)) return;
  std::string whole = read_text(file), kept;
  whole.resize(whole.rfind('\n') + 1);
  write_file(file, whole);
  read_jsonl(file, [&](int64_t, const Json& row) {
    const int64_t at = row.value("step", int64_t{0});
    const bool of_training = row.contains("train/loss") || row.contains("train/tokens_per_second");
    if (at < step || (at == step && (step == 0 || of_training))) kept += row.dump() + "\n";
  });
  write_file(file, kept);
}

std::vector<HeldOutMeasure> held_out_measures(const LoopResult& loop, const std::vector<MeasureText>& own) {
  std::vector<MeasureText> texts = own;
  texts.insert(texts.end(), distance_texts().begin(), distance_texts().end());
  std::vector<HeldOutMeasure> measures;
  for (const MeasureText& text : texts) {
    const auto after = loop.after.find(text.name);
    if (after == loop.after.end()) continue;
    const auto before = loop.before.find(text.name);
    measures.push_back({.name = text.title,
                        .before = before == loop.before.end() ? Interval{} : before->second,
                        .after = after->second,
                        .format = text.format,
                        .unit = text.unit,
                        .better = text.better,
                        .explanation = text.explanation,
                        .headline = text.headline});
  }
  return measures;
}

double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

double mean_score(const Reward& reward, const std::vector<ShownPrompt>& shown, const Answers& answers) {
  std::vector<PromptedResponse> responses;
  for (size_t i = 0; i < answers.texts.size(); ++i)
    responses.push_back({.prompt = shown[i].prompt, .response = answers.texts[i], .tokens = answers.tokens[i]});
  const std::vector<double> scores = reward(responses);
  return std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size());
}

/// A conversation as one text for the report.
std::string prompt_text(const std::vector<Message>& prompt) {
  std::string text;
  for (const Message& message : prompt) {
    text += (text.empty() ? "" : "\n\n") + (prompt.size() > 1 ? message.role + ": " : std::string()) + message.content;
  }
  return text;
}

void write_report(const fs::path& folder, const RunJob& job, const RunParts& parts, LoopResult& loop,
                  const std::vector<ShownPrompt>& shown, const Answers& before, const Answers& after,
                  const Task& task) {
  RunReport report;
  Json evaluation{{"steps", loop.steps}};
  write_file(folder / "resources.json", Json{{"seconds", loop.seconds},
                                             {"tokens", task.tokens()},
                                             {"peak_memory_bytes", peak_memory()},
                                             {"threads", at::get_num_threads()},
                                             {"processes", processes().count()}}
                                                .dump(1) +
                                            "\n");
  report.resources = {{"time in training steps", duration_text(loop.seconds)},
                      {"tokens per second in training",
                       fmt::format("{:.0f}", static_cast<double>(task.tokens()) / std::max(loop.seconds, 1e-9))},
                      {"peak memory", bytes_text(peak_memory())},
                      {"threads", std::to_string(at::get_num_threads())},
                      {"processes", std::to_string(processes().count())}};
  if (parts.finish) parts.finish(task, loop.after, report, evaluation);
  report.title = parts.title;
  report.summary = parts.summary;
  report.summary.push_back(fmt::format("{} steps of {} rows out of {}", loop.steps,
                                       job.loop.batch_size * job.loop.accumulation, job.data.data));
  if (loop.best_step > 0) {
    report.summary.push_back(
        fmt::format("the weights are those of step {}, where {} was best", loop.best_step, job.loop.stop_metric));
  }
  if (loop.scale != 1) {
    report.summary.push_back(
        fmt::format("the whole update was scaled by {:.3f} after training, so that the limit is kept", loop.scale));
  }
  report.configuration = job.configuration;
  report.metrics = read_metrics(folder / "metrics.jsonl");
  const std::vector<MetricSeries> timings = read_metrics(folder / "timings.jsonl");
  report.metrics.insert(report.metrics.end(), timings.begin(), timings.end());
  report.held_out = held_out_measures(loop, parts.measures);
  for (size_t i = 0; i < after.texts.size(); ++i) {
    report.samples.push_back({prompt_text(shown[i].prompt), i < before.texts.size() ? before.texts[i] : "",
                              after.texts[i], shown[i].chosen, shown[i].rejected});
  }
  report.rows = parts.rows;

  evaluation["update_scale"] = loop.scale;
  if (!after.texts.empty()) {
    evaluation["answer_tokens"] = {{"before", before.mean_length()},
                                   {"after", after.mean_length()},
                                   {"prompts", after.texts.size()},
                                   {"at_most", job.run.sample_tokens}};
    report.resources.emplace_back(
        fmt::format("mean length of the {} answers below, before and after (at most {} tokens)", after.texts.size(),
                    job.run.sample_tokens),
        fmt::format("{:.1f}, {:.1f}", before.tokens.empty() ? 0.0 : before.mean_length().get<double>(),
                    after.mean_length().get<double>()));
  }
  if (parts.score && !after.texts.empty() && before.texts.size() == after.texts.size()) {
    const double first = mean_score(*parts.score, shown, before), last = mean_score(*parts.score, shown, after);
    evaluation["answer_score"] = {{"reward", parts.score->name()}, {"before", first}, {"after", last}};
    report.resources.emplace_back("mean score of the answers below, before and after",
                                  fmt::format("{:.3g}, {:.3g}", first, last));
  }
  evaluation["before"] = Json::object(), evaluation["after"] = Json::object();
  for (const auto& [name, interval] : loop.before) evaluation["before"][name] = interval_json(interval);
  for (const auto& [name, interval] : loop.after) evaluation["after"][name] = interval_json(interval);
  evaluation["intervals"] = "[value, low, high], 95 % bootstrap over prompts";
  write_file(folder / "evaluation.json", evaluation.dump(1) + "\n");
  write_run_report(report, folder);  // last: a run that has a report is complete
}

}  // namespace

namespace {

Options<RunOptions> made_run_options(const std::string& model) {
  using O = RunOptions;
  return Options<O>()
      .option(model, &O::model,
              "the model to train: a name known to `kullback pull`, a GGUF file or a Hugging Face folder")
      .option("adapter", &O::adapter, "a PEFT adapter that the model begins with")
      .option("reference-model", &O::reference_model,
              "compare with this model instead of the policy as it was; same tokenizer")
      .option("output", &O::output, "the run folder to write; must not exist yet, or be empty")
      .option("train", &O::train, {{"lora", O::Train::lora}, {"full", O::Train::full}},
              "low-rank adapters, or all weights")
      .option("weights", &O::weights, {{"float32", O::Weights::float32}, {"bfloat16", O::Weights::bfloat16}},
              "their type while training; bfloat16 takes half the memory, with a float32 copy of what is trained")
      .option("recompute", &O::recompute,
              "keep each layer's input alone for the backward pass and make the rest anew: less memory, slower")
      .option("head-memory", &O::head_memory, at_least(16),
              "MiB that the head may hold beyond its inputs and gradients; less is slower")
      .option("lora-rank", &O::lora_rank, at_least(1), "rank r of the adapters")
      .option("lora-alpha", &O::lora_alpha, positive, "the adapters' change is scaled by alpha / r")
      .option("lora-targets", &O::lora_targets,
              std::vector<std::string>{"all-linear", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                       "down_proj"},
              "layers that get an adapter")
      .option("samples", &O::samples, at_least(0),
              "held-out prompts that are answered before and after, for the report")
      .option("sample-tokens", &O::sample_tokens, at_least(1), "length of those answers at most");
}

}  // namespace

const Options<RunOptions>& run_options() {
  static const auto options = made_run_options("model");
  return options;
}

const Options<RunOptions>& student_run_options() {
  static const auto options = made_run_options("student");
  return options;
}

const std::vector<MeasureText>& distance_texts() {
  static const std::vector<MeasureText> texts{
      {"kl", "KL(policy || reference)", "nats/token", Better::neither,
       "exact, over the whole vocabulary at every held-out response token", true},
      {"reverse_kl", "KL(reference || policy)", "nats/token", Better::neither, "the same, the other way round", true},
      {"tv", "TV(policy, reference)", "", Better::neither, "total variation, mean over held-out response tokens"},
      {"chi2", "chi2(policy || reference)", "", Better::neither, "mean over held-out response tokens"},
      {"sequence_kl", "KL(policy || reference) a response", "nats", Better::neither,
       "summed over each held-out response's tokens"},
      {"sequence_reverse_kl", "KL(reference || policy) a response", "nats", Better::neither,
       "the same, the other way round"},
      {"entropy", "entropy of the policy", "nats/token", Better::neither, "mean over held-out response tokens"}};
  return texts;
}

std::vector<std::pair<std::string, int64_t>> row_texts(const RowCounts& counts, int64_t held_out,
                                                       const std::string& rows) {
  std::vector<std::pair<std::string, int64_t>> texts{
      {rows + " used for training", counts.used},
      {rows + " held out", held_out},
      {"with a response cut to --max-length", counts.cut},
      {"dropped, since the prompt alone fills --max-length", counts.dropped}};
  if (counts.merged > 0)
    texts.emplace_back("responses encoded apart, since a token would cross their beginning", counts.merged);
  return texts;
}

void note_rows(const RowCounts& counts, int64_t held_out, const std::string& rows, int64_t max_length) {
  note(fmt::format("{} {} to train on, {} held out; {} cut to {} tokens, {} dropped", counts.used, rows, held_out,
                   counts.cut, max_length, counts.dropped));
}

void check_run(const RunJob& job) {
  const Limits limits(job.limits);
  if (!processes().first()) return set_verbosity(Verbosity::quiet);  // the first process writes and talks
  remove_unfinished(job.run.output);
  if (!job.resume) check_new_folder(job.run.output);
}

namespace {

/// What a run folder holds of a run that goes on, or begins.
struct Beginning {
  int64_t step = 0;
  Json state;  // of the checkpoint
  Answers samples;
  std::map<std::string, Interval> figures;
};

/// Goes back to the newest checkpoint, which every process reads before the first one cuts the logs to it.
Beginning resumed_run(const fs::path& folder, Optimizer& optimizer) {
  Beginning begin;
  if (const auto state = load_checkpoint(folder, optimizer)) {
    begin.state = *state;
    begin.step = state->at("step").get<int64_t>();
    begin.samples = read_before(folder);
  }
  processes().wait_for_all();
  if (processes().first()) {
    for (const char* log : {"metrics.jsonl", "timings.jsonl"}) cut_log(folder / log, begin.step == 0 ? -1 : begin.step);
  }
  processes().wait_for_all();
  if (begin.step > 0) begin.figures = logged_before(folder);
  note(fmt::format("resuming {} after step {}", folder.string(), begin.step));
  return begin;
}

}  // namespace

RunResult run_training(Model& model, RunJob job, const RunParts& parts) {
  const RunOptions& o = job.run;
  const fs::path folder = o.output;
  const bool adapters = o.train == RunOptions::Train::lora, writes = processes().first();
  if (job.optimizer.learning_rate == 0)
    job.optimizer.learning_rate = default_learning_rate(job.optimizer.optimizer, adapters);
  const std::vector<ShownPrompt> shown(
      parts.prompts.begin(), parts.prompts.begin() + std::min<std::ptrdiff_t>(std::ssize(parts.prompts), o.samples));

  set_head_memory(o.head_memory << 20);
  prepare_policy(model, job);
  const bool compared = parts.reference || !job.limits.limit.empty();
  const OwnedReference reference = compared ? make_reference(model, o) : OwnedReference{};
  const std::unique_ptr<Task> task =
      parts.task(model.transformer, compared ? reference.of(model.transformer) : Reference{}, Limits(job.limits));
  std::function<void(double)> rescale;  // none where the policy does not begin at its reference
  if (compared && o.reference_model.empty()) {
    rescale = update_scale(model.transformer.trainable(),
                           adapters ? std::vector<NamedTensor>() : reference.other->parameters());
  }
  Optimizer optimizer(model.transformer.trainable(), job.optimizer);
  // A limit is held to held-out rows as the run goes on, so that they have to be looked at.
  if (!job.limits.limit.empty() && job.loop.eval_every == 0)
    job.loop.eval_every = std::max<int64_t>(1, Schedule(job.loop, task->examples()).steps() / 6);

  Beginning begin;
  if (job.resume) {
    begin = resumed_run(folder, optimizer);
  } else if (writes) {
    fs::create_directories(folder);
    write_file(folder / "config.toml", job.configuration);
  }
  processes().wait_for_all();  // the folder is there
  if (parts.prepare) parts.prepare(*task, folder, job.loop);
  if (begin.step == 0 && writes) {
    begin.samples = answers(model, shown, job);
    write_before(folder, begin.samples);
  }
  RunResult result{
      .loop = run_loop(*task, optimizer, job.loop, job.optimizer, folder, begin.step, begin.state, rescale),
      .trained = {},
      .report = {}};
  if (begin.step > 0) result.loop.before = begin.figures;
  if (result.loop.interrupted) return result;
  if (parts.derive) parts.derive(result.loop.before), parts.derive(result.loop.after);
  const fs::path trained = folder / (adapters ? "adapter" : "model");
  result.trained = trained.string();
  result.report = (folder / "report.html").string();
  if (!writes) return result;

  // What was learnt first: a run that is killed while it answers has lost its report alone.
  fs::remove_all(trained);  // of a run that was killed after this, before its report
  if (adapters) {
    save_adapter(model.transformer, trained, o.model);
  } else {
    save_model(model, trained);
  }
  const Answers samples_after = answers(model, shown, job);
  write_report(folder, job, parts, result.loop, shown, begin.samples, samples_after, *task);
  return result;
}

}  // namespace kullback
