#include "cli/training.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/report/table.h"
#include "kullback/train/processes.h"

namespace kullback {

const Options<ResumeOptions>& resume_options() {
  using O = ResumeOptions;
  static const auto options =
      Options<O>()
          .option("resume", &O::resume,
                  "go on with the interrupted run in this folder; takes no other option but --json")
          .option("json", &O::json, "print one JSON object of what came out instead of a table");
  return options;
}

void training_options(Command& command, RunJob& job) {
  command.options("Limits", limit_options(), &job.limits)
      .options("Training", loop_options(), &job.loop)
      .options("Optimiser", optimizer_options(), &job.optimizer);
}

RunState run_state(const std::string& folder) {
  const std::filesystem::path path = folder;
  if (std::filesystem::exists(path / "report.html")) return RunState::complete;  // the last file that a run writes
  return std::filesystem::exists(path / "config.toml") ? RunState::begun : RunState::to_do;
}

std::vector<std::string> resumed_arguments(const std::string& command, const std::vector<std::string>& given,
                                           bool* resumed) {
  const auto folder = Command::peek(given, "resume");
  *resumed = folder.has_value();
  if (!folder) return given;
  const bool json = std::ranges::find(given, "--json") != given.end();
  const size_t own = std::ranges::find(given, "--resume") == given.end() ? 1 : 2;  // --resume=FOLDER is one word
  if (given.size() > own + (json ? 1 : 0))
    fail("kullback {}: --resume takes no other option; the run goes on as {}/config.toml says", command, *folder);
  const auto config = std::filesystem::path(*folder) / "config.toml";
  if (!std::filesystem::exists(config)) fail("option --resume: {} holds no run (no config.toml)", *folder);
  if (run_state(*folder) == RunState::complete) fail("option --resume: the run in {} is complete", *folder);
  std::vector<std::string> arguments{"--config", config.string(), "--output", *folder};
  if (json) arguments.emplace_back("--json");
  return arguments;
}

void require_inputs(const std::string& command, const RunJob& job) {
  for (const auto& [name, value] :
       {std::pair{"model", job.run.model}, {"data", job.data.data}, {"output", job.run.output}}) {
    if (value.empty()) fail("kullback {}: --{} is missing", command, name);
  }
}

namespace {

Json json_of(const RunJob& job, const RunResult& result) {
  Json json{{"output", job.run.output},
            {"steps", result.loop.steps},
            {"seconds", result.loop.seconds},
            {"trained", result.trained},
            {"report", result.report}};
  for (const auto& [key, figures] : {std::pair{"before", &result.loop.before}, {"after", &result.loop.after}}) {
    json[key] = Json::object();
    for (const auto& [name, value] : *figures) json[key][name] = figure_json(value);
  }
  return json;
}

}  // namespace

int finish_run(const std::string& command, const RunJob& job, const RunResult& result, bool json) {
  if (!processes().first()) return result.loop.interrupted ? exit_interrupted : exit_success;
  if (result.loop.interrupted) {
    fmt::print(stderr, "stopped after step {}; to go on: kullback {} --resume {}\n", result.loop.steps, command,
               job.run.output);
    return exit_interrupted;
  }
  if (json) {
    fmt::print("{}\n", json_of(job, result).dump(1));
    return exit_success;
  }
  Table table{
      .title = "", .columns = {text_column("held out"), number_column("before"), number_column("after")}, .rows = {}};
  for (const auto& [name, after] : result.loop.after) {
    const auto before = result.loop.before.find(name);
    table.rows.push_back({Cell(name), before == result.loop.before.end() ? Cell() : Cell(before->second), Cell(after)});
  }
  if (!table.rows.empty()) fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  fmt::print("steps    {} in {}\n{:<8} {}\nreport   {}\n", result.loop.steps, duration_text(result.loop.seconds),
             job.run.train == RunOptions::Train::lora ? "adapter" : "model", result.trained, result.report);
  return exit_success;
}

}  // namespace kullback
