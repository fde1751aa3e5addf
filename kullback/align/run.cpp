#include "kullback/align/run.h"

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/report/progress.h"
#include "kullback/train/preference_task.h"

namespace kullback {
namespace {

const std::vector<MeasureText> measures{
    {"likelier", "chosen is likelier", "", Better::higher,
     "share of held-out pairs whose chosen response has the higher mean log-probability a token", true, percent(1)},
    {"accuracy", "reward accuracy", "", Better::higher,
     "share of held-out pairs whose chosen response has the higher reward; 0 before the first step, when all rewards "
     "are equal",
     true, percent(1)},
    {"margin", "reward margin", "", Better::higher, "mean reward of chosen less rejected"},
    {"token_logps/chosen", "log-probability, chosen", "nats/token", Better::neither,
     "mean a token of held-out chosen responses"},
    {"token_logps/rejected", "log-probability, rejected", "nats/token", Better::neither,
     "mean a token of held-out rejected responses"},
    {"loss", "held-out loss", "", Better::lower, "the method's loss on held-out pairs"},
};

std::vector<int32_t> bare_beginning(const Model& model, const std::string& method) {
  const auto id = model.text().bos() ? model.text().bos() : model.text().eos();
  if (!id)
    fail("{}: has no beginning-of-sequence token, which {} needs for likelihoods without the prompt", model.name,
         method);
  return {*id};
}

}  // namespace

RunResult run_alignment(const AlignJob& job) {
  if (job.method->recipe.type() != typeid(PreferenceRecipe))
    fail("option --method: {} does not train on preference pairs", job.method->name);
  const auto recipe = std::any_cast<PreferenceRecipe>(job.method->recipe);
  recipe.validate(job.method_options.get());
  check_run(job);

  Model model = load_model(job.run.model);
  PreferenceData training = load_preferences(job.data.data, model, job.data);
  PreferenceData held_out = held_out_rows(
      training, job, [&](const std::string& path, const DataOptions& o) { return load_preferences(path, model, o); });
  const RowCounts& counts = training.counts;
  note_rows(counts, std::ssize(held_out.pairs), "pairs", job.data.max_length);

  RunParts parts{.title = fmt::format("{} on {}", job.method->name, job.run.model),
                 .summary = {job.method->summary},
                 .measures = measures,
                 .rows = row_texts(counts, std::ssize(held_out.pairs), "pairs"),
                 .prompts = {},
                 .task = {}};
  for (const PreferencePair& pair : held_out.pairs)
    parts.prompts.push_back({pair.prompt, pair.chosen_text, pair.rejected_text});
  std::vector<int32_t> prefix;
  if (recipe.needs(job.method_options.get()).reference_without_prompt) prefix = bare_beginning(model, job.method->name);
  parts.task = [&](const Transformer& policy, Reference reference, Limits limits) {
    auto task =
        std::make_unique<PreferenceTask>(policy, reference, *job.method, job.method_options.get(), std::move(training),
                                         std::move(held_out), std::move(prefix), std::move(limits));
    if (job.cache_reference) {
      std::optional<Progress> progress;
      task->prepare_reference(cache_folder() / "reference-logps", [&](int64_t done, int64_t total) {
        if (!progress) progress.emplace("reference", total);
        progress->update(done);
      });
      if (progress) progress->finish();
    }
    return task;
  };
  return run_training(model, job, parts);
}

}  // namespace kullback
