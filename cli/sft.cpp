#include "cli/training.h"
#include "kullback/train/supervised_task.h"

namespace kullback {
namespace {

/// `resume`: null for the configuration of a run, which has no such thing.
Command describe(RunJob& job, ResumeOptions* resume) {
  Command command(
      "sft", "train a model on given responses by maximum likelihood",
      "Reads responses (JSONL with TRL's columns: messages, whose last answer is learnt; prompt and completion; or\n"
      "text, all of which is learnt), trains adapters or all weights, and writes a run folder as `kullback align` "
      "does,\n"
      "with how far the model moved. It is the plain baseline, and the step before preferences.");
  command.options("Run", run_options(), &job.run);
  if (resume != nullptr) command.options("Resume", resume_options(), resume);
  command.options("Data", data_options(), &job.data);
  training_options(command, job);
  command.example("kullback sft --model smollm2-135m-instruct --data instructions.jsonl --output runs/sft")
      .example("kullback sft --limit \"kl<=0.1\" --model my-model/ --data instructions.jsonl --output runs/near")
      .example("kullback sft --resume runs/sft");
  return command;
}

const std::vector<MeasureText> measures{
    {"loss", "held-out loss", "nats/token", Better::lower, "mean over held-out response tokens of -log policy", true},
    {"top_1", "likeliest token is right", "", Better::higher,
     "share of held-out response tokens that the policy would have said first", true, percent(1)}};

RunResult run_supervised(const RunJob& job) {
  check_run(job);
  Model model = load_model(job.run.model);
  SupervisedData training = load_supervised(job.data.data, model, job.data);
  SupervisedData held_out = held_out_rows(
      training, job, [&](const std::string& path, const DataOptions& o) { return load_supervised(path, model, o); });
  const RowCounts& counts = training.counts;
  note_rows(counts, std::ssize(held_out.examples), "rows", job.data.max_length);
  RunParts parts{.title = fmt::format("Supervised fine-tuning of {}", job.run.model),
                 .summary = {"maximum likelihood of the given responses"},
                 .measures = measures,
                 .rows = row_texts(counts, std::ssize(held_out.examples), "rows"),
                 .prompts = {},
                 .task = {}};
  for (const Example& example : held_out.examples) {
    if (!example.prompt.empty()) parts.prompts.push_back({example.prompt, example.text, ""});
  }
  parts.task = [&](const Transformer& policy, Reference reference, Limits limits) {
    return std::make_unique<SupervisedTask>(policy, reference, std::move(training), std::move(held_out),
                                            std::move(limits));
  };
  return run_training(model, job, parts);
}

int run(const std::vector<std::string>& given) {
  RunJob job;
  ResumeOptions resume;
  const std::vector<std::string> arguments = resumed_arguments("sft", given, &job.resume);
  if (!describe(job, &resume).parse(arguments)) return exit_success;
  require_inputs("sft", job);
  job.configuration = describe(job, nullptr).toml();
  return finish_run("sft", job, run_supervised(job), resume.json);
}

const RegisteredProgram program{{"sft", "train a model on given responses by maximum likelihood",
                                 [] {
                                   static RunJob job;
                                   static ResumeOptions resume;
                                   return describe(job, &resume);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
