#include "kullback/align/reward_run.h"

#include <numeric>

#include "kullback/align/salsa.h"
#include "kullback/base/error.h"
#include "kullback/lm/lora.h"
#include "kullback/rewards/reward.h"
#include "kullback/train/distillation_task.h"
#include "kullback/train/soup.h"

namespace kullback {
namespace {

const std::vector<MeasureText> measures{
    {"kl_to_average", "KL(policy || average)", "nats/token", Better::neither,
     "exact, over the whole vocabulary at every token of the held-out rows' own responses", true},
    {"reverse_kl_to_average", "KL(average || policy)", "nats/token", Better::neither, "the same, the other way round"},
    {"tv_to_average", "TV(policy, average)", "", Better::neither, "total variation"},
    {"loss", "cross-entropy of the held-out responses", "nats/token", Better::lower, "of the data's responses"},
};

/// Weights of --model and of the others, which sum to 1.
std::vector<double> soup_weights(const SalsaOptions& o) {
  if (o.soup_weights.empty() && o.soup.size() == 1) return {o.alpha, 1 - o.alpha};
  std::vector<double> weights = o.soup_weights;
  if (weights.empty()) weights.assign(o.soup.size() + 1, 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

/// The average that the policy is held to. The policy's own part: with its adapter merged.
Model averaged(const Model& policy, const AlignJob& job, const SalsaOptions& o) {
  std::vector<Model> models{policy};
  if (!job.run.adapter.empty()) {
    load_adapter(models[0].transformer, job.run.adapter);
    merge_lora(models[0].transformer);
  }
  for (const std::string& name : o.soup) models.push_back(load_merged(name, job.run.model, "option --soup"));
  return soup(models, soup_weights(o));
}

}  // namespace

void check_reward_method(const AlignJob& job) {
  std::any_cast<DistillationRecipe>(job.method->recipe).validate(job.method_options.get());
  const auto& o = *static_cast<const SalsaOptions*>(job.method_options.get());
  if (o.policy_init == SalsaOptions::PolicyInit::soup && job.run.train == RunOptions::Train::lora)
    fail(
        "option --policy-init: an adapter cannot be saved for an average that is no folder; take --train full, or make "
        "it with `kullback soup` and give it as --model");
  if (job.cache_reference) fail("option --cache-reference: method {} has no pairs", job.method->name);
  if (job.diagnose_gradients > 0) fail("option --diagnose-gradients: method {} has no pairs", job.method->name);
}

RunResult run_reward_alignment(AlignJob job) {
  const auto& o = *static_cast<const SalsaOptions*>(job.method_options.get());
  check_run(job);

  Model model = load_model(job.run.model);
  std::vector<Model> average{averaged(model, job, o)};
  if (o.policy_init == SalsaOptions::PolicyInit::soup) {
    model.transformer = average[0].transformer.clone();
    job.run.adapter.clear();  // the average holds its share of it already
  }
  const Teacher held_to(std::move(average), {1});
  SupervisedData training = load_prompts(job.data.data, model, job.data);
  SupervisedData held_out = held_out_rows(
      training, job, [&](const std::string& path, const DataOptions& d) { return load_prompts(path, model, d); });
  note_rows(training.counts, std::ssize(held_out.examples), "prompts", job.data.max_length);
  if (job.optimizer.learning_rate == 0)
    job.optimizer.learning_rate =
        default_learning_rate(job.optimizer.optimizer, job.run.train == RunOptions::Train::lora);

  RunParts parts{.title = fmt::format("{} on {}", job.method->name, job.run.model),
                 .summary = {job.method->summary,
                             fmt::format("reward: {}; held to the average with {}", o.reward, fmt::join(o.soup, ", "))},
                 .measures = measures,
                 .rows = row_texts(training.counts, std::ssize(held_out.examples), "prompts"),
                 .prompts = {},
                 .task = {}};
  for (const Example& example : held_out.examples) {
    if (!example.prompt.empty()) parts.prompts.push_back({example.prompt, example.text, ""});
  }
  parts.score = reward(o.reward);
  parts.task = [&](const Transformer& policy, Reference reference, Limits limits) {
    DistillationSetup setup{.stop_ids = model.generation.stop_ids,
                            .response_tokens = o.response_tokens,
                            .seed = static_cast<uint64_t>(job.loop.seed),
                            .learning_rate = job.optimizer.learning_rate,
                            .batch_size = job.loop.batch_size,
                            .vocabulary = model.text().vocabulary_size(),
                            .student_tokenizer = &model.text()};
    setup.distances = true;
    setup.names = {{"backward_kl", "kl_to_average"},
                   {"forward_kl", "reverse_kl_to_average"},
                   {"teacher_tv", "tv_to_average"},
                   {"js", ""},
                   {"agreement", ""},
                   {"top_1", ""}};
    return std::make_unique<DistillationTask>(policy, held_to, reference, *job.method, job.method_options.get(),
                                              std::move(training), std::move(held_out), SupervisedData{},
                                              std::move(setup), std::move(limits));
  };
  parts.finish = [](const Task& task, std::map<std::string, Interval>&, RunReport& report, Json& evaluation) {
    const auto& own = dynamic_cast<const DistillationTask&>(task);
    const double share = own.step_seconds() > 0 ? own.sampling_seconds() / own.step_seconds() : 0;
    report.resources.emplace_back("share of training spent in sampling", fmt::format("{:.1f} %", 100 * share));
    evaluation["sampling_share"] = share;
  };
  return run_training(model, job, parts);
}

}  // namespace kullback
