#include "cli/compare.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "cli/program.h"
#include "cli/silent_output.h"
#include "cli/training.h"
#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/base/registry.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/report/frontier.h"
#include "kullback/report/page.h"
#include "kullback/report/plot.h"
#include "kullback/report/progress.h"
#include "kullback/train/interrupt.h"

namespace kullback {
namespace fs = std::filesystem;

bool method_has_option(const std::string& method, const std::string& option) {
  const auto& options = find_method(method).options;
  return options && options->find(option) != nullptr;
}

Interval held_out_figure(const Json& evaluation, const std::string& figure) {
  const Json& after = evaluation.at("after");
  if (!after.contains(figure)) return {};
  const Json& v = after.at(figure);
  const auto number = [](const Json& one) { return one.is_number() ? one.get<double>() : std::nan(""); };
  return {number(v[0]), number(v[1]), number(v[2])};
}

namespace {

constexpr const char* runs_name = "runs.json";

/// Mean length of the answers after training, where any were drawn.
Cell answer_length(const Json& evaluation) {
  const Json lengths = evaluation.value("answer_tokens", Json::object());
  return lengths.contains("after") && lengths["after"].is_number() ? Cell(lengths["after"].get<double>()) : Cell();
}

Table table_of(const Comparison& comparison) {
  Table table{.title = "Held out, after training", .columns = {text_column("method")}, .rows = {}};
  for (const ComparedFigure& one : comparison.figures)
    table.columns.push_back(number_column(one.title, one.format, one.unit));
  table.columns.push_back(number_column("answers", significant(3), "tokens"));
  table.columns.push_back(number_column("time", significant(3), "s"));
  for (const std::string& method : comparison.methods) {
    const Json evaluation = read_json(fs::path(comparison.output) / method / "evaluation.json");
    std::vector<Cell> row{Cell(method)};
    for (const ComparedFigure& one : comparison.figures) {
      const Interval value = held_out_figure(evaluation, one.figure);
      row.push_back(evaluation.at("after").contains(one.figure) ? Cell(value) : Cell());
    }
    row.push_back(answer_length(evaluation));
    row.emplace_back(read_json(fs::path(comparison.output) / method / "resources.json").at("seconds").get<double>());
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What each method bought against how far it moved.
Plot plot_of(const Comparison& comparison) {
  const auto axis = [&](const std::string& figure) {
    const auto found = std::ranges::find(comparison.figures, figure, &ComparedFigure::figure);
    Axis own;
    own.title = found->title, own.unit = found->unit;
    return own;
  };
  std::vector<FrontierEntry> entries;
  for (const std::string& method : comparison.methods) {
    const Json evaluation = read_json(fs::path(comparison.output) / method / "evaluation.json");
    entries.push_back({.name = method,
                       .divergence = held_out_figure(evaluation, comparison.price),
                       .reward = held_out_figure(evaluation, comparison.bought)});
  }
  Plot plot = frontier_plot(entries, axis(comparison.price), axis(comparison.bought));
  plot.title = "What each method bought, and how far it moved for it";
  plot.note = "held out, with 95 % intervals over rows";
  return plot;
}

void write_table(const Comparison& comparison, const Table& table) {
  const fs::path folder = comparison.output;
  write_file(folder / "comparison.json", table_json(table).dump(1) + "\n");
  Page page{.title = fmt::format("{} compared", listing(comparison.methods)),
            .summary = {"the same rows in the same order; 95 % intervals over held-out rows"}};
  const Plot plot = plot_of(comparison);
  write_file(folder / "comparison.svg", svg(plot));
  page.sections.push_back({"Held out", {Plots{{plot}}, table}});
  page.file_name = "comparison";
  write_file(folder / "comparison.html", page_html(page));
}

/// The methods that --method names, commas between them.
std::vector<std::string> compared_methods(const std::string& text) {
  std::vector<std::string> methods(1);
  for (const char c : text) {
    if (c == ',') {
      methods.emplace_back();
    } else if (c != ' ') {
      methods.back() += c;
    }
  }
  if (std::set<std::string>(methods.begin(), methods.end()).size() != methods.size())
    fail("option --method: a method is named twice in \"{}\"", text);
  return methods;
}

}  // namespace

std::vector<std::string> arguments_of(const Comparison& comparison, const std::string& method) {
  std::vector<std::string> own;
  for (size_t i = 0; i < comparison.arguments.size(); ++i) {
    const std::string& word = comparison.arguments[i];
    const bool is_option = word.starts_with("--");
    const size_t equals = word.find('=');
    std::string name =
        is_option ? canonical_option_name(word.substr(2, equals == std::string::npos ? equals : equals - 2)) : "";
    const bool takes_next = is_option && equals == std::string::npos && i + 1 < comparison.arguments.size() &&
                            !comparison.arguments[i + 1].starts_with("--");
    const auto belongs = [&](const std::string& to) {
      return method_has_option(to, name) || (name.starts_with("no-") && method_has_option(to, name.substr(3)));
    };
    const bool of_others = is_option && !belongs(method) && std::ranges::any_of(comparison.methods, belongs);
    if (name == "method" || name == "output" || of_others) {
      if (takes_next) ++i;
      continue;
    }
    own.push_back(word);
  }
  own.insert(own.end(), {"--method", method, "--output", (fs::path(comparison.output) / method).string()});
  return own;
}

namespace {

/// Runs all that is not complete in the folder.
int compare(const Comparison& comparison) {
  for (const std::string& method : comparison.methods) comparison.check(arguments_of(comparison, method));
  const fs::path folder = comparison.output;
  if (!fs::exists(folder / runs_name)) {
    check_new_folder(folder);
    fs::create_directories(folder);
    write_file(
        folder / runs_name,
        Json{{"command", comparison.command}, {"methods", comparison.methods}, {"arguments", comparison.arguments}}
                .dump(1) +
            "\n");
  }
  for (const std::string& method : comparison.methods) {
    const fs::path own = folder / method;
    const RunState state = run_state(own);
    if (state == RunState::complete) continue;
    note(fmt::format("{} ({} of {})", method,
                     std::ranges::find(comparison.methods, method) - comparison.methods.begin() + 1,
                     comparison.methods.size()));
    const SilentOutput silent(comparison.json);
    int status = comparison.run(state == RunState::begun ? std::vector<std::string>{"--resume", own.string()}
                                                         : arguments_of(comparison, method));
    // A run that was past its last step when it was asked to stop is complete; those after it are to wait all the same.
    if (status == exit_success && interrupted() && method != comparison.methods.back()) status = exit_interrupted;
    if (status == exit_interrupted)
      fmt::print(stderr, "the comparison stopped at {}; to go on: kullback {} --resume {}\n", method,
                 comparison.command, comparison.output);
    if (status != exit_success) return status;
  }
  const Table table = table_of(comparison);
  write_table(comparison, table);
  if (comparison.json) {
    fmt::print("{}\n", table_json(table).dump(1));
  } else {
    fmt::print("\n{}comparison {}\n", table_terminal(table, terminal_style(stdout)),
               (folder / "comparison.html").string());
  }
  return exit_success;
}

/// Whether --resume names the folder of a comparison; what it holds then.
bool resumed_comparison(const std::string& folder, Comparison& comparison) {
  const fs::path file = fs::path(folder) / runs_name;
  if (!fs::exists(file)) return false;
  const Json runs = read_json(file);
  comparison.methods = runs.at("methods").get<std::vector<std::string>>();
  comparison.arguments = runs.at("arguments").get<std::vector<std::string>>();
  comparison.output = folder;
  return true;
}

}  // namespace

int run_or_compare(Comparison comparison, const std::vector<std::string>& arguments) {
  const auto folder = Command::peek(arguments, "resume");
  comparison.json = std::ranges::find(arguments, "--json") != arguments.end();
  if (folder) return resumed_comparison(*folder, comparison) ? compare(comparison) : comparison.run(arguments);
  comparison.methods = compared_methods(Command::peek(arguments, "method").value_or(comparison.otherwise));
  if (comparison.methods.size() == 1) return comparison.run(arguments);
  comparison.arguments = arguments;
  std::erase(comparison.arguments, "--json");  // of the table, once, and not of each run
  comparison.output = Command::peek(arguments, "output").value_or("");
  if (comparison.output.empty()) fail("kullback {}: --output is missing", comparison.command);
  for (const std::string& method : comparison.methods) find_method(method, comparison.family);
  return compare(comparison);
}

}  // namespace kullback
