#include <filesystem>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/align/run.h"
#include "kullback/base/error.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

struct ResumeOptions {
  std::string resume;
};

const Options<ResumeOptions>& resume_options() {
  static const auto options = Options<ResumeOptions>().option(
      "resume", &ResumeOptions::resume, "go on with the interrupted run in this folder; takes no other option");
  return options;
}

/// `resume`: null for the configuration of a run, which has no such thing.
Command describe(AlignJob& job, ResumeOptions* resume) {
  Command command(
      "align", "train a model on preferences, or with a reward, under a divergence from a reference",
      "Reads preference pairs (JSONL with TRL's columns prompt, chosen, rejected; texts or messages), trains adapters "
      "or\n"
      "all weights, and writes a run folder: config.toml, metrics.jsonl, the adapter (PEFT) or the model (Hugging "
      "Face),\n"
      "evaluation.json and report.html. The report says exactly how far the model moved from its reference.");
  command.options("Run", align_options(), &job.align);
  if (resume != nullptr) command.options("Resume", resume_options(), resume);
  command.options("Data", data_options(), &job.data)
      .options("Method " + job.method->name, *job.method->options, job.method_options.get())
      .options("Limits", limit_options(), &job.limits)
      .options("Training", loop_options(), &job.loop)
      .options("Optimiser", optimizer_options(), &job.optimizer)
      .example("kullback align --method dpo --model smollm2-135m-instruct --data pairs.jsonl --output runs/first")
      .example(
          "kullback align --method dpo --loss-type ipo --beta 0.2 --model my-model/ --data pairs.jsonl --output "
          "runs/ipo --train full")
      .example(
          "kullback align --method dpo --limit \"kl<=0.05\" --model smollm2-135m-instruct --data pairs.jsonl --output "
          "runs/near")
      .example("kullback align --resume runs/first");
  return command;
}

AlignJob job_of(const std::string& method) {
  AlignJob job;
  job.method = &find_method(method, Family::alignment);
  job.method_options = job.method->options->defaults();
  return job;
}

void print_outcome(const AlignJob& job, const AlignResult& result) {
  Table table{
      .title = "", .columns = {text_column("held out"), number_column("before"), number_column("after")}, .rows = {}};
  for (const auto& [name, after] : result.loop.after) {
    const auto before = result.loop.before.find(name);
    table.rows.push_back({Cell(name), before == result.loop.before.end() ? Cell() : Cell(before->second), Cell(after)});
  }
  if (!table.rows.empty()) fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  fmt::print("steps    {} in {}\n{:<8} {}\nreport   {}\n", result.loop.steps, duration_text(result.loop.seconds),
             job.align.train == AlignOptions::Train::lora ? "adapter" : "model", result.trained, result.report);
}

int run(const std::vector<std::string>& given) {
  std::vector<std::string> arguments = given;
  std::string resumed;
  if (const auto folder = Command::peek(given, "resume")) {
    resumed = *folder;
    if (given.size() > 2)
      fail("kullback align: --resume takes no other option; the run goes on as {}/config.toml says", *folder);
    const auto config = std::filesystem::path(*folder) / "config.toml";
    if (!std::filesystem::exists(config)) fail("option --resume: {} holds no run (no config.toml)", *folder);
    if (std::filesystem::exists(std::filesystem::path(*folder) / "report.html"))
      fail("option --resume: the run in {} is complete", *folder);
    arguments = {"--config", config.string(), "--output", *folder};
  }
  AlignJob job = job_of(Command::peek(arguments, "method").value_or("dpo"));
  ResumeOptions resume;
  if (!describe(job, &resume).parse(arguments)) return exit_success;
  for (const auto& [name, value] :
       {std::pair{"model", job.align.model}, {"data", job.data.data}, {"output", job.align.output}}) {
    if (value.empty()) fail("kullback align: --{} is missing", name);
  }
  job.resume = !resumed.empty();
  job.configuration = describe(job, nullptr).toml();
  const AlignResult result = run_alignment(job);
  if (result.loop.interrupted) {
    fmt::print(stderr, "stopped after step {}; to go on: kullback align --resume {}\n", result.loop.steps,
               job.align.output);
    return exit_interrupted;
  }
  print_outcome(job, result);
  return exit_success;
}

const RegisteredProgram program{{"align", "train a model on preferences under a divergence from a reference",
                                 [] {
                                   static AlignJob job = job_of("dpo");
                                   static ResumeOptions resume;
                                   return describe(job, &resume);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
