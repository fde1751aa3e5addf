// `kullback run plan.toml`: a grid of runs, one after the other.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "cli/compare.h"
#include "cli/program.h"
#include "cli/silent_output.h"
#include "cli/training.h"
#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/registry.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/report/page.h"
#include "kullback/report/progress.h"
#include "kullback/train/interrupt.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

struct RunGridOptions {
  std::string output;
  std::vector<std::string> figures;
  bool list = false, json = false;
};

const Options<RunGridOptions>& grid_options() {
  using O = RunGridOptions;
  static const auto options =
      Options<O>()
          .option("output", &O::output, "the folder of all runs, in place of the plan's")
          .option("figures", &O::figures, "held-out figures of the table, in its order; else those that every run has")
          .option("list", &O::list, "show what would be run, and what is complete, and run nothing")
          .option("json", &O::json, "print the table, or the list, as JSON");
  return options;
}

/// One value on one axis: an option and what it is set to.
struct Setting {
  std::string option, value;
};
using Combination = std::vector<Setting>;

struct Plan {
  std::string path, command, output;
  Combination fixed;
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;
};

std::string value_text(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  fail("{} must be a text, a number or true or false", where);
}

/// A value of [options], where a list is one value with several parts.
std::string fixed_text(const Json& value, const std::string& where) {
  if (!value.is_array()) return value_text(value, where);
  std::string text;
  for (const Json& part : value) text += (text.empty() ? "" : ",") + value_text(part, where);
  return text;
}

Plan read_plan(const std::string& path) {
  const Json json = read_toml(path);
  Plan plan{.path = path, .command = {}, .output = {}, .fixed = {}, .axes = {}};
  static const std::vector<std::string> known{"command", "output", "options", "grid"};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(known, key) == known.end())
      fail("{}: unknown key \"{}\"{}", path, key, suggestion(key, known));
  }
  for (const char* table : {"options", "grid"}) {
    if (json.contains(table) && !json[table].is_object()) fail("{}: {} must be a table, [{}]", path, table, table);
  }
  if (!json.contains("command")) fail("{}: command is missing, such as command = \"align\"", path);
  plan.command = value_text(json["command"], path + ": command");
  if (json.contains("output")) plan.output = value_text(json["output"], path + ": output");
  const Json fixed = json.value("options", Json::object()), grid = json.value("grid", Json::object());
  for (const auto& [key, value] : fixed.items())
    plan.fixed.push_back({canonical_option_name(key), fixed_text(value, fmt::format("{}: options.{}", path, key))});
  for (const auto& [key, value] : grid.items()) {
    const std::string where = fmt::format("{}: grid.{}", path, key);
    if (!value.is_array() || value.empty()) fail("{} must be a list of values, such as [0.1, 0.5]", where);
    std::vector<std::string> values;
    for (const Json& one : value) values.push_back(fixed_text(one, where));
    plan.axes.emplace_back(canonical_option_name(key), values);
  }
  // Methods vary slowest: the table then reads method by method.
  std::ranges::stable_partition(plan.axes, [](const auto& axis) { return axis.first == "method"; });
  return plan;
}

const std::string* value_of(const Combination& combination, const std::string& option) {
  for (const Setting& setting : combination) {
    if (setting.option == option) return &setting.value;
  }
  return nullptr;
}

/// Whether an option belongs to some methods of the plan and not to this one: such an axis does not divide its runs.
bool is_of_others(const Plan& plan, const std::string& method, const std::string& option) {
  const auto has = [&](const std::string& name) { return method_has_option(name, option); };
  if (method.empty() || has(method)) return false;
  for (const auto& [axis, values] : plan.axes) {
    if (axis == "method") return std::ranges::any_of(values, has);
  }
  return false;
}

/// Every run's own settings, the axes of other methods left out and no run twice.
std::vector<Combination> combinations(const Plan& plan) {
  std::vector<Combination> all{{}};
  for (const auto& [option, values] : plan.axes) {
    std::vector<Combination> longer;
    for (const Combination& beginning : all) {
      const std::string* method = value_of(beginning, "method");
      if (method == nullptr) method = value_of(plan.fixed, "method");
      if (method != nullptr && is_of_others(plan, *method, option)) {
        longer.push_back(beginning);
        continue;
      }
      for (const std::string& value : values) {
        longer.push_back(beginning);
        longer.back().push_back({option, value});
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// A run's folder, named after its settings.
std::string folder_name(const Combination& combination) {
  std::string name;
  for (const Setting& setting : combination) name += (name.empty() ? "" : ",") + setting.option + "=" + setting.value;
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("/\\<>:\"|?* ").find(c) != std::string_view::npos; }, '_');
  return name.empty() ? "run" : name;
}

std::vector<std::string> arguments_of(const Plan& plan, const Combination& own, const fs::path& output) {
  std::vector<std::string> arguments;
  for (const Combination* settings : {&plan.fixed, &own}) {
    for (const Setting& s : *settings) {
      if (settings == &plan.fixed && value_of(own, s.option) != nullptr) continue;
      arguments.push_back(fmt::format("--{}={}", s.option, s.value));
    }
  }
  arguments.insert(arguments.end(), {"--output", output.string()});
  return arguments;
}

/// The held-out figures that every run has, without those of single sides ("token_logps/chosen") and sums.
std::vector<std::string> common_figures(const std::vector<Json>& evaluations) {
  std::vector<std::string> names;
  for (const auto& [name, value] : evaluations.at(0).at("after").items()) {
    const bool everywhere =
        std::ranges::all_of(evaluations, [&name = name](const Json& e) { return e.at("after").contains(name); });
    if (everywhere && name.find('/') == std::string::npos && !name.starts_with("sequence_")) names.push_back(name);
  }
  return names;
}

Table table_of(const Plan& plan, const std::vector<Combination>& runs, const fs::path& output,
               std::vector<std::string> figures) {
  std::vector<Json> evaluations;
  for (const Combination& run : runs) evaluations.push_back(read_json(output / folder_name(run) / "evaluation.json"));
  if (figures.empty()) figures = common_figures(evaluations);
  Table table{.title = "Held out, after training", .columns = {}, .rows = {}};
  for (const auto& [option, values] : plan.axes) table.columns.push_back(text_column(option));
  for (const std::string& figure : figures) table.columns.push_back(number_column(figure, significant(3)));
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<Cell> row;
    for (const auto& [option, values] : plan.axes) {
      const std::string* value = value_of(runs[i], option);
      row.push_back(value == nullptr ? Cell() : Cell(*value));
    }
    for (const std::string& figure : figures) row.emplace_back(held_out_figure(evaluations[i], figure));
    table.rows.push_back(std::move(row));
  }
  return table;
}

const Program& program_of(const Plan& plan) {
  static const std::vector<std::string> trains{"align", "distill", "sft"};
  if (std::ranges::find(trains, plan.command) == trains.end())
    fail("{}: command: \"{}\" does not train{}; there are {}", plan.path, plan.command,
         suggestion(plan.command, trains), listing(trains));
  return *std::ranges::find(programs(), plan.command, &Program::name);
}

Command describe(RunGridOptions& options, std::vector<std::string>& plans) {
  Command command(
      "run", "a grid of training runs from one file: methods x betas x seeds, finished ones skipped",
      "Reads a plan (TOML), makes one run for every combination, one after the other, and ends with a table.\n"
      "Started again it skips what is complete and goes on with what was interrupted.\n\n"
      "  command = \"align\"            # or sft, distill\n"
      "  output = \"runs/grid\"\n"
      "  [options]                    # of every run\n"
      "  model = \"smollm2-135m-instruct\"\n"
      "  data = \"pairs.jsonl\"\n"
      "  [grid]                       # every combination of these\n"
      "  method = [\"dpo\", \"kto\"]\n"
      "  beta = [0.05, 0.1]\n"
      "  seed = [0, 1, 2]\n\n"
      "An option that only some methods have divides the runs of those alone.");
  command.options("Grid", grid_options(), &options)
      .arguments("plan.toml", &plans, "the plan", 1, 1)
      .example("kullback run plan.toml")
      .example("kullback run plan.toml --list");
  return command;
}

int run_grid(const std::vector<std::string>& given) {
  RunGridOptions options;
  std::vector<std::string> plans;
  if (!describe(options, plans).parse(given)) return exit_success;
  const Plan plan = read_plan(plans[0]);
  const Program& program = program_of(plan);
  const fs::path output = options.output.empty() ? plan.output : options.output;
  if (output.empty()) fail("{}: output is missing, such as output = \"runs/grid\"", plan.path);
  const std::vector<Combination> runs = combinations(plan);
  Json listed = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const fs::path folder = output / folder_name(runs[i]);
    const RunState state = run_state(folder);
    const bool complete = state == RunState::complete, begun = state == RunState::begun;
    if (options.list) {
      const char* word = complete ? "complete" : begun ? "begun" : "to do";
      listed.push_back({{"folder", folder.string()}, {"state", word}});
      if (!options.json) fmt::print("{:<8}  {}\n", word, folder.string());
      continue;
    }
    note(fmt::format("run {} of {}: {}{}", i + 1, runs.size(), folder_name(runs[i]), complete ? ", complete" : ""));
    if (complete) continue;
    const SilentOutput silent(options.json);
    int status = program.run(begun ? std::vector<std::string>{"--resume", folder.string()}
                                   : arguments_of(plan, runs[i], folder));
    if (status == exit_success && interrupted() && i + 1 < runs.size()) status = exit_interrupted;
    if (status == exit_interrupted) fmt::print(stderr, "to go on with the plan: kullback run {}\n", plan.path);
    if (status != exit_success) return status;
  }
  if (options.list) {
    if (options.json) fmt::print("{}\n", listed.dump(1));
    return exit_success;
  }
  const Table table = table_of(plan, runs, output, options.figures);
  write_file(output / "table.csv", table_csv(table));
  write_file(output / "table.json", table_json(table).dump(1) + "\n");
  Page page{
      .title = fmt::format("The runs of {}", fs::path(plan.path).filename().string()),
      .summary = {fmt::format("{} runs of kullback {}; 95 % intervals over held-out rows", runs.size(), plan.command)}};
  page.sections.push_back({"Held out", {table}});
  page.file_name = "runs";
  write_file(output / "table.html", page_html(page));
  if (options.json) {
    fmt::print("{}\n", table_json(table).dump(1));
    return exit_success;
  }
  fmt::print("\n{}table    {}\n", table_terminal(table, terminal_style(stdout)), (output / "table.html").string());
  return exit_success;
}

const RegisteredProgram registered{{"run", "a grid of training runs from one file: methods x betas x seeds",
                                    [] {
                                      static RunGridOptions options;
                                      static std::vector<std::string> plans;
                                      return describe(options, plans);
                                    },
                                    run_grid}};

}  // namespace
}  // namespace kullback
