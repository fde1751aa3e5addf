#include "kullback/align/run.h"

#include <ATen/ATen.h>

#include "kullback/align/gradient_diagnosis.h"
#include "kullback/align/reward_run.h"
#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/report/progress.h"
#include "kullback/train/distillation.h"
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

const std::vector<MeasureText> gradient_measures{
    {"gradients/cosine", "cosine of the gradients", "", Better::lower,
     "between the gradients of a pair's two log-probabilities; near 1, what raises one raises the other"},
    {"gradients/condition", "entanglement", "", Better::lower,
     "inner product of the two gradients over the smaller one's square; above 1, a margin loss moves both responses "
     "the same way"},
    {"gradients/apart", "pairs that a step draws apart", "", Better::higher,
     "share of pairs of which the next step of this loss raises chosen and lowers rejected, to first order", true,
     percent(1)},
    {"gradients/both_fall", "pairs of which both fall", "", Better::lower,
     "share of pairs of which the next step lowers both responses", true, percent(1)},
};

/// A preference task whose evaluations also look at the gradients of the first held-out pairs.
class DiagnosedTask : public PreferenceTask {
 public:
  DiagnosedTask(int64_t pairs, const Transformer& policy, auto&&... rest)
      : PreferenceTask(policy, std::forward<decltype(rest)>(rest)...), pairs_(pairs), policy_(policy) {}

  std::vector<Figures> evaluate(const std::function<void(int64_t, int64_t)>& progress) override {
    std::vector<Figures> rows = PreferenceTask::evaluate(progress);
    const at::AutoGradMode gradients(true);
    std::vector<at::Tensor> weights;
    for (const NamedTensor& one : policy_.trainable()) weights.push_back(one.tensor);
    for (size_t i = 0; i < std::min(rows.size(), static_cast<size_t>(pairs_)); ++i) {
      const PreferencePair& pair = held_out()[i];
      if (pair.chosen.counted() == 0 || pair.rejected.counted() == 0) continue;
      const StepEffect e = step_effect(policy_, pair, held_out_loss(i), weights);
      rows[i]["gradients/cosine"] = {e.cosine, 1};
      rows[i]["gradients/condition"] = {e.condition, 1};
      rows[i]["gradients/apart"] = {e.chosen > 0 && e.rejected < 0 ? 1.0 : 0.0, 1};
      rows[i]["gradients/both_fall"] = {e.chosen < 0 && e.rejected < 0 ? 1.0 : 0.0, 1};
    }
    return rows;
  }

 private:
  int64_t pairs_;
  const Transformer& policy_;
};

std::vector<int32_t> bare_beginning(const Model& model, const std::string& method) {
  const auto id = model.text().bos() ? model.text().bos() : model.text().eos();
  if (!id)
    fail("{}: has no beginning-of-sequence token, which {} needs for likelihoods without the prompt", model.name,
         method);
  return {*id};
}

}  // namespace

void check_method(const AlignJob& job) {
  if (job.method->recipe.type() == typeid(DistillationRecipe)) return check_reward_method(job);
  const auto recipe = std::any_cast<PreferenceRecipe>(&job.method->recipe);
  if (recipe == nullptr)
    fail("option --method: {} trains nothing; `kullback explain {}` says what it is for", job.method->name,
         job.method->name);
  recipe->validate(job.method_options.get());
}

RunResult run_alignment(const AlignJob& job) {
  check_method(job);
  if (job.method->recipe.type() == typeid(DistillationRecipe)) return run_reward_alignment(job);
  const auto recipe = std::any_cast<PreferenceRecipe>(job.method->recipe);
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
  if (job.diagnose_gradients > 0)
    parts.measures.insert(parts.measures.end(), gradient_measures.begin(), gradient_measures.end());
  for (const PreferencePair& pair : held_out.pairs)
    parts.prompts.push_back({pair.prompt, pair.chosen_text, pair.rejected_text});
  std::vector<int32_t> prefix;
  if (recipe.needs(job.method_options.get()).reference_without_prompt) prefix = bare_beginning(model, job.method->name);
  parts.task = [&](const Transformer& policy, Reference reference, Limits limits) {
    const auto made = [&]<class T>(std::in_place_type_t<T>, auto... first) -> std::unique_ptr<PreferenceTask> {
      return std::make_unique<T>(first..., policy, reference, *job.method, job.method_options.get(),
                                 std::move(training), std::move(held_out), std::move(prefix), std::move(limits));
    };
    auto task = job.diagnose_gradients > 0 ? made(std::in_place_type<DiagnosedTask>, job.diagnose_gradients)
                                           : made(std::in_place_type<PreferenceTask>);
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
