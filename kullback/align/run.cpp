#include "kullback/align/run.h"

#include <sys/resource.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/report/progress.h"
#include "kullback/report/run_report.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/preference_task.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

/// The frozen model that a run compares with, kept alive beside the task that uses it.
struct OwnedReference {
  std::optional<Transformer> other;
  AdapterUse use = AdapterUse::on;
  Reference of(const Transformer& policy) const { return {other ? &*other : &policy, use}; }
};

void prepare_policy(Model& model, const AlignJob& job) {
  const AlignOptions& o = job.align;
  if (!o.adapter.empty()) load_adapter(model.transformer, o.adapter);
  if (o.train == AlignOptions::Train::full) {
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
OwnedReference make_reference(const Model& policy, const AlignOptions& o) {
  if (!o.reference_model.empty()) {
    Model other = load_model(o.reference_model);
    if (other.config().vocabulary_size != policy.config().vocabulary_size) {
      fail("option --reference-model: {} has a vocabulary of {}, the policy {}; they must share a tokenizer",
           o.reference_model, other.config().vocabulary_size, policy.config().vocabulary_size);
    }
    return {.other = std::move(other.transformer), .use = AdapterUse::on};
  }
  if (o.train == AlignOptions::Train::lora && o.adapter.empty()) return {.other = std::nullopt, .use = AdapterUse::off};
  return {.other = policy.transformer.clone(), .use = AdapterUse::on};
}

std::vector<std::string> answers(const Model& model, const std::vector<PreferencePair>& pairs, const AlignJob& job) {
  const auto count = std::min(pairs.size(), static_cast<size_t>(job.align.samples));
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < count; ++i) prompts.push_back(encode_prompt(model, pairs[i].prompt, job.data.text_format));
  if (prompts.empty()) return {};
  GenerationOptions options{.sampling = {.temperature = 0},
                            .max_new_tokens = job.align.sample_tokens,
                            .stop_ids = model.generation.stop_ids,
                            .streams = {}};
  Progress progress("sample", static_cast<int64_t>(count) * options.max_new_tokens);
  int64_t drawn = 0;
  const auto generated = generate(model.transformer, prompts, options, [&](size_t, int32_t) {
    progress.update(++drawn);
    return true;
  });
  progress.finish();
  std::vector<std::string> texts;
  for (const Generated& one : generated) {
    texts.push_back(model.text().decode(one.ids, /*skip_special=*/true) + (one.stopped ? "" : " …"));
  }
  return texts;
}

Json interval_json(const Interval& interval) { return Json::array({interval.value, interval.low, interval.high}); }

/// What was measured before the first step, so that a resumed run can report it.
void write_before(const fs::path& folder, const std::map<std::string, Interval>& figures,
                  const std::vector<std::string>& samples) {
  Json json{{"figures", Json::object()}, {"samples", samples}};
  for (const auto& [name, interval] : figures) json["figures"][name] = interval_json(interval);
  write_file(folder / "before.json", json.dump(1) + "\n");
}

std::map<std::string, Interval> read_before(const fs::path& folder, std::vector<std::string>& samples) {
  const Json json = read_json(folder / "before.json");
  samples = json.at("samples").get<std::vector<std::string>>();
  std::map<std::string, Interval> figures;
  for (const auto& [name, v] : json.at("figures").items())
    figures[name] = {v[0].get<double>(), v[1].get<double>(), v[2].get<double>()};
  return figures;
}

/// Leaves only the rows up to `step`: those after it were logged by a part of the run that is lost and will be made again.
void cut_metrics(const fs::path& folder, int64_t step) {
  std::string kept;
  if (!fs::exists(folder / "metrics.jsonl")) return;
  read_jsonl(folder / "metrics.jsonl", [&](int64_t, const Json& row) {
    if (row.value("step", int64_t{0}) <= step) kept += row.dump() + "\n";
  });
  write_file(folder / "metrics.jsonl", kept);
}

struct MeasureText {
  const char* name;
  const char* title;
  const char* unit;
  Better better;
  const char* explanation;
  bool headline;
};
const MeasureText measure_texts[] = {
    {"likelier", "chosen is likelier", "", Better::higher,
     "share of held-out pairs whose chosen response has the higher mean log-probability a token", true},
    {"accuracy", "reward accuracy", "", Better::higher,
     "share of held-out pairs whose chosen response has the higher reward; 0 before the first step, when all rewards "
     "are equal",
     true},
    {"margin", "reward margin", "", Better::higher, "mean reward of chosen less rejected", false},
    {"kl", "KL(policy || reference)", "nats/token", Better::neither,
     "exact, over the whole vocabulary at every held-out response token", true},
    {"reverse_kl", "KL(reference || policy)", "nats/token", Better::neither, "the same, the other way round", true},
    {"entropy", "entropy of the policy", "nats/token", Better::neither, "mean over held-out response tokens", false},
    {"token_logps/chosen", "log-probability, chosen", "nats/token", Better::neither,
     "mean a token of held-out chosen responses", false},
    {"token_logps/rejected", "log-probability, rejected", "nats/token", Better::neither,
     "mean a token of held-out rejected responses", false},
    {"loss", "held-out loss", "", Better::lower, "the method's loss on held-out pairs", false},
};

std::vector<HeldOutMeasure> held_out_measures(const LoopResult& loop) {
  std::vector<HeldOutMeasure> measures;
  for (const MeasureText& text : measure_texts) {
    const auto after = loop.after.find(text.name);
    if (after == loop.after.end()) continue;
    const auto before = loop.before.find(text.name);
    const bool share = std::string_view(text.name) == "likelier" || std::string_view(text.name) == "accuracy";
    measures.push_back({.name = text.title,
                        .before = before == loop.before.end() ? Interval{} : before->second,
                        .after = after->second,
                        .format = share ? percent(1) : significant(3),
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

void write_report(const fs::path& folder, const AlignJob& job, const LoopResult& loop, const RowCounts& counts,
                  int64_t held_out, const std::vector<PreferencePair>& pairs, const std::vector<std::string>& before,
                  const std::vector<std::string>& after, int64_t tokens) {
  RunReport report;
  report.title = fmt::format("{} on {}", job.method->name, job.align.model);
  report.summary = {job.method->summary,
                    fmt::format("{} steps of {} pairs, out of {} in {}", loop.steps,
                                job.loop.batch_size * job.loop.accumulation, counts.used, job.data.data)};
  report.configuration = job.configuration;
  report.metrics = read_metrics(folder / "metrics.jsonl");
  report.held_out = held_out_measures(loop);
  for (size_t i = 0; i < after.size(); ++i) {
    std::string prompt;
    for (const Message& message : pairs[i].prompt) {
      prompt += (prompt.empty() ? "" : "\n\n") + (pairs[i].prompt.size() > 1 ? message.role + ": " : std::string()) +
                message.content;
    }
    report.samples.push_back(
        {prompt, i < before.size() ? before[i] : "", after[i], pairs[i].chosen_text, pairs[i].rejected_text});
  }
  report.rows = {{"pairs used for training", counts.used},
                 {"pairs held out", held_out},
                 {"with a response cut to --max-length", counts.cut},
                 {"dropped, since the prompt alone fills --max-length", counts.dropped}};
  if (counts.merged > 0)
    report.rows.emplace_back("responses encoded apart, since a token would cross their beginning", counts.merged);
  report.resources = {{"time in training steps", duration_text(loop.seconds)},
                      {"tokens per second in training",
                       fmt::format("{:.0f}", static_cast<double>(tokens) / std::max(loop.seconds, 1e-9))},
                      {"peak memory", bytes_text(peak_memory())},
                      {"threads", std::to_string(at::get_num_threads())}};
  write_run_report(report, folder);

  Json evaluation{{"steps", loop.steps}, {"before", Json::object()}, {"after", Json::object()}};
  for (const auto& [name, interval] : loop.before) evaluation["before"][name] = interval_json(interval);
  for (const auto& [name, interval] : loop.after) evaluation["after"][name] = interval_json(interval);
  evaluation["intervals"] = "[value, low, high], 95 % bootstrap over prompts";
  write_file(folder / "evaluation.json", evaluation.dump(1) + "\n");
}

std::vector<int32_t> bare_beginning(const Model& model, const std::string& method) {
  const auto id = model.text().bos() ? model.text().bos() : model.text().eos();
  if (!id)
    fail("{}: has no beginning-of-sequence token, which {} needs for likelihoods without the prompt", model.name,
         method);
  return {*id};
}

}  // namespace

const Options<AlignOptions>& align_options() {
  using O = AlignOptions;
  static const auto options =
      Options<O>()
          .option("method", &O::method, "which loss; `kullback methods --family alignment` lists them")
          .option("model", &O::model,
                  "the model to align: a name known to `kullback pull`, a GGUF file or a Hugging Face folder")
          .option("adapter", &O::adapter, "a PEFT adapter that the model begins with")
          .option("reference-model", &O::reference_model,
                  "compare with this model instead of the policy as it was; same tokenizer")
          .option("output", &O::output, "the run folder to write; must not exist yet, or be empty")
          .option("train", &O::train, {{"lora", O::Train::lora}, {"full", O::Train::full}},
                  "low-rank adapters, or all weights")
          .option("lora-rank", &O::lora_rank, at_least(1), "rank r of the adapters")
          .option("lora-alpha", &O::lora_alpha, positive, "the adapters' change is scaled by alpha / r")
          .option("lora-targets", &O::lora_targets,
                  std::vector<std::string>{"all-linear", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                           "down_proj"},
                  "layers that get an adapter")
          .option("samples", &O::samples, at_least(0),
                  "held-out prompts that are answered before and after, for the report")
          .option("sample-tokens", &O::sample_tokens, at_least(1), "length of those answers at most");
  return options;
}

AlignResult run_alignment(AlignJob job) {
  const AlignOptions& o = job.align;
  const fs::path folder = o.output;
  if (job.method->recipe.type() != typeid(PreferenceRecipe))
    fail("option --method: {} does not train on preference pairs", job.method->name);
  const auto recipe = std::any_cast<PreferenceRecipe>(job.method->recipe);
  recipe.validate(job.method_options.get());
  if (job.optimizer.learning_rate == 0)
    job.optimizer.learning_rate = o.train == AlignOptions::Train::lora ? 1e-4 : 1e-6;
  if (!job.resume) check_new_folder(folder);

  Model model = load_model(o.model);
  PreferenceData training = load_preferences(job.data.data, model, job.data);
  PreferenceData held_out{.path = {}, .pairs = {}, .counts = {}};
  if (!job.data.eval_data.empty()) {
    DataOptions whole = job.data;
    whole.max_rows = 0;
    held_out = load_preferences(job.data.eval_data, model, whole);
  } else {
    held_out = hold_out(training, job.data.eval_fraction, static_cast<uint64_t>(job.loop.seed));
    training.counts.used = static_cast<int64_t>(training.pairs.size());
  }
  const RowCounts counts = training.counts;
  const std::vector<PreferencePair> shown(
      held_out.pairs.begin(), held_out.pairs.begin() + std::min<std::ptrdiff_t>(std::ssize(held_out.pairs), o.samples));
  const auto held_out_count = std::ssize(held_out.pairs);
  note(fmt::format("{} pairs to train on, {} held out; {} cut to {} tokens, {} dropped", counts.used, held_out_count,
                   counts.cut, job.data.max_length, counts.dropped));

  prepare_policy(model, job);
  const OwnedReference reference = make_reference(model, o);
  const Needs needs = recipe.needs(job.method_options.get());
  std::vector<int32_t> prefix;
  if (needs.reference_without_prompt) prefix = bare_beginning(model, job.method->name);
  PreferenceTask task(model.transformer, reference.of(model.transformer), *job.method, job.method_options.get(),
                      std::move(training), std::move(held_out), std::move(prefix));
  AdamW optimizer(model.transformer.trainable(), job.optimizer);

  int64_t first_step = 0;
  std::vector<std::string> samples_before;
  std::map<std::string, Interval> figures_before;
  if (job.resume) {
    if (const auto state = load_checkpoint(folder, optimizer)) {
      first_step = state->at("step").get<int64_t>();
      figures_before = read_before(folder, samples_before);
    }
    cut_metrics(folder, first_step == 0 ? -1 : first_step);
    note(fmt::format("resuming {} after step {}", folder.string(), first_step));
  } else {
    fs::create_directories(folder);
    write_file(folder / "config.toml", job.configuration);
  }
  if (first_step == 0) {
    samples_before = answers(model, shown, job);
    write_before(folder, {}, samples_before);
  }
  AlignResult result{
      .loop = run_loop(task, optimizer, job.loop, job.optimizer, folder, first_step), .trained = {}, .report = {}};
  if (first_step > 0) result.loop.before = figures_before;
  if (first_step == 0) write_before(folder, result.loop.before, samples_before);
  if (result.loop.interrupted) return result;

  const std::vector<std::string> samples_after = answers(model, shown, job);
  if (o.train == AlignOptions::Train::lora) {
    save_adapter(model.transformer, folder / "adapter", o.model);
    result.trained = (folder / "adapter").string();
  } else {
    save_model(model, folder / "model");
    result.trained = (folder / "model").string();
  }
  write_report(folder, job, result.loop, counts, held_out_count, shown, samples_before, samples_after, task.tokens());
  result.report = (folder / "report.html").string();
  return result;
}

}  // namespace kullback
