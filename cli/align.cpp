#include "cli/compare.h"
#include "cli/training.h"
#include "kullback/align/run.h"
#include "kullback/base/error.h"

namespace kullback {
namespace {

struct MethodChoice {
  std::string method = "dpo";
  bool cache_reference = false;
  int64_t diagnose_gradients = 0;
};

const Options<MethodChoice>& method_choice() {
  static const auto options =
      Options<MethodChoice>()
          .option("method", &MethodChoice::method,
                  "which loss; `kullback methods --family alignment` lists them; several, with commas, are "
                  "compared")
          .option("cache-reference", &MethodChoice::cache_reference,
                  "compute the reference's log-probabilities of all pairs before training and keep them in the cache "
                  "folder, for this run and every other with the same reference and pairs")
          .option("diagnose-gradients", &MethodChoice::diagnose_gradients, non_negative,
                  "at each evaluation, say for so many held-out pairs whether a step of this loss moves chosen and "
                  "rejected together (`kullback explain gradient-entanglement`); three backward passes a pair");
  return options;
}

/// `resume`: null for the configuration of a run, which has no such thing.
Command describe(AlignJob& job, MethodChoice& choice, ResumeOptions* resume) {
  Command command(
      "align", "train a model on preferences, or with a reward, under a divergence from a reference",
      "Reads preference pairs (JSONL with TRL's columns prompt, chosen, rejected; texts or messages), or for a method\n"
      "that asks a reward the prompts of any rows; trains adapters or all weights, and writes a run folder: "
      "config.toml,\n"
      "metrics.jsonl, the adapter (PEFT) or the model (Hugging Face), evaluation.json and report.html. The report says "
      "exactly how far the model moved from its reference.");
  command.options("Method", method_choice(), &choice).options("Run", run_options(), &job.run);
  if (resume != nullptr) command.options("Resume", resume_options(), resume);
  command.options("Data", data_options(), &job.data)
      .options("Method " + job.method->name, *job.method->options, job.method_options.get());
  training_options(command, job);
  command.example("kullback align --method dpo --model smollm2-135m-instruct --data pairs.jsonl --output runs/first")
      .example(
          "kullback align --method dpo --loss-type ipo --beta 0.2 --model my-model/ --data pairs.jsonl --output "
          "runs/ipo --train full")
      .example(
          "kullback align --method dpo --limit \"kl<=0.05\" --model smollm2-135m-instruct --data pairs.jsonl --output "
          "runs/near")
      .example("kullback align --resume runs/first");
  return command;
}

AlignJob job_of(const std::string& method) { return job_of<AlignJob>(method, Family::alignment); }

/// One method.
int run_one(const std::vector<std::string>& given) {
  bool resumed = false;
  const std::vector<std::string> arguments = resumed_arguments("align", given, &resumed);
  AlignJob job = job_of(Command::peek(arguments, "method").value_or("dpo"));
  ResumeOptions resume;
  MethodChoice choice;
  if (!describe(job, choice, &resume).parse(arguments)) return exit_success;
  require_inputs("align", job);
  job.resume = resumed;
  job.cache_reference = choice.cache_reference;
  job.diagnose_gradients = choice.diagnose_gradients;
  job.configuration = describe(job, choice, nullptr).toml();
  return finish_run("align", job, run_alignment(job), resume.json);
}

int run(const std::vector<std::string>& given) {
  const Comparison comparison{.command = "align",
                              .family = Family::alignment,
                              .otherwise = "dpo",
                              .figures = {{"likelier", "chosen is likelier", "", percent(1)},
                                          {"accuracy", "reward accuracy", "", percent(1)},
                                          {"kl", "KL(policy || reference)", "nats/token"},
                                          {"reverse_kl", "KL(reference || policy)", "nats/token"},
                                          {"tv", "TV"}},
                              .bought = "likelier",
                              .price = "kl",
                              .run = run_one,
                              .check = [](const std::vector<std::string>& arguments) {
                                AlignJob job = job_of(Command::peek(arguments, "method").value_or("dpo"));
                                MethodChoice choice;
                                describe(job, choice, nullptr).parse(arguments);
                                job.cache_reference = choice.cache_reference;
                                job.diagnose_gradients = choice.diagnose_gradients;
                                check_method(job);
                              }};
  return run_or_compare(comparison, given);
}

const RegisteredProgram program{{"align", "train a model on preferences under a divergence from a reference",
                                 [] {
                                   static AlignJob job = job_of("dpo");
                                   static ResumeOptions resume;
                                   static MethodChoice choice;
                                   return describe(job, choice, &resume);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
