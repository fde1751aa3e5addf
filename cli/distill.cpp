#include "cli/compare.h"
#include "cli/training.h"
#include "kullback/base/error.h"
#include "kullback/distill/run.h"
#include "kullback/train/distillation.h"

namespace kullback {
namespace {

struct MethodChoice {
  std::string method = "kd";
};

const Options<MethodChoice>& method_choice() {
  static const auto options = Options<MethodChoice>().option(
      "method", &MethodChoice::method,
      "which loss; `kullback methods --family distillation` lists them; several, with commas, are compared");
  return options;
}

/// `resume`: null for the configuration of a run, which has no such thing.
Command describe(DistillJob& job, MethodChoice& choice, ResumeOptions* resume) {
  Command command(
      "distill", "train a student to say what a teacher says",
      "Reads responses as `kullback sft` does, trains the student to match the teacher's next-token laws on them (or "
      "on\n"
      "responses drawn from teacher or student, as the method says), and writes a run folder: config.toml,\n"
      "metrics.jsonl, the model (Hugging Face) or adapter (PEFT), evaluation.json and report.html with the exact\n"
      "distances to the teacher on held-out rows. The models may differ in width, depth and architecture.");
  command.options("Method", method_choice(), &choice)
      .options("Models", distill_options(), &job.distill)
      .options("Run", student_run_options(), &job.run);
  if (resume != nullptr) command.options("Resume", resume_options(), resume);
  command.options("Data", data_options(), &job.data)
      .options("Method " + job.method->name, *job.method->options, job.method_options.get());
  training_options(command, job);
  command
      .example(
          "kullback distill --method kd --teacher smollm2-135m-instruct --student-layers every-2 --data rows.jsonl "
          "--output runs/half")
      .example(
          "kullback distill --method kd --divergence reverse_kl --teacher big/ --student small/ --data rows.jsonl "
          "--output runs/reverse")
      .example(
          "kullback distill --method kd,pd --teacher big/ --student small/ --data rows.jsonl --output runs/compared")
      .example("kullback distill --resume runs/half");
  return command;
}

DistillJob job_of(const std::string& method) { return job_of<DistillJob>(method, Family::distillation); }

/// The job of these arguments before they are read, since what some of them say decides which others there are.
DistillJob job_for(const std::vector<std::string>& arguments) {
  DistillJob job = job_of(Command::peek(arguments, "method").value_or("kd"));
  // A student made of the teacher's layers has no model that an adapter could be put on.
  if (Command::peek(arguments, "student-layers").value_or("") != "") job.run.train = RunOptions::Train::full;
  return job;
}

/// One method.
int run_one(const std::vector<std::string>& given) {
  bool resumed = false;
  const std::vector<std::string> arguments = resumed_arguments("distill", given, &resumed);
  DistillJob job = job_for(arguments);
  ResumeOptions resume;
  MethodChoice choice;
  if (!describe(job, choice, &resume).parse(arguments)) return exit_success;
  for (const auto& [name, value] : {std::pair{"data", job.data.data}, {"output", job.run.output}}) {
    if (value.empty()) fail("kullback distill: --{} is missing", name);
  }
  job.resume = resumed;
  job.configuration = describe(job, choice, nullptr).toml();
  return finish_run("distill", job, run_distillation(job), resume.json);
}

int run(const std::vector<std::string>& given) {
  const Comparison comparison{.command = "distill",
                              .family = Family::distillation,
                              .otherwise = "kd",
                              .figures = {{"forward_kl", "KL(teacher || student)", "nats/token"},
                                          {"backward_kl", "KL(student || teacher)", "nats/token"},
                                          {"teacher_tv", "TV"},
                                          {"js", "JS", "nats/token"},
                                          {"agreement", "agreement", "", percent(1)},
                                          {"perplexity", "perplexity"}},
                              .bought = "agreement",
                              .price = "forward_kl",
                              .run = run_one,
                              .check = [](const std::vector<std::string>& arguments) {
                                DistillJob job = job_for(arguments);
                                MethodChoice choice;
                                describe(job, choice, nullptr).parse(arguments);
                                check_options(job);
                              }};
  return run_or_compare(comparison, given);
}

const RegisteredProgram program{{"distill", "train a student to say what a teacher says",
                                 [] {
                                   static DistillJob job = job_of("kd");
                                   static ResumeOptions resume;
                                   static MethodChoice choice;
                                   return describe(job, choice, &resume);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
