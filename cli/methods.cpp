#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/measure/divergence_guide.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

struct MethodsOptions {
  std::string family;
  bool json = false;
};

const Options<MethodsOptions>& methods_options() {
  static const auto options =
      Options<MethodsOptions>()
          .option("family", &MethodsOptions::family,
                  "only this family: alignment, distillation, decoding, compression, merging or measurement")
          .option("json", &MethodsOptions::json, "as JSON, with options, papers and needs");
  return options;
}

/// The command that runs a method; those without a recipe so far serve the library and its fixtures.
std::string runner(const Method& method) {
  if (!method.recipe.has_value()) return "library, check";
  return method.family == Family::alignment ? "align" : method.family == Family::distillation ? "distill" : "library";
}

Json method_json(const Method& method) {
  Json json{{"name", method.name},       {"family", family_name(method.family)},
            {"summary", method.summary}, {"formula", method.formula},
            {"when", method.when},       {"run_by", runner(method)},
            {"needs", method.needs},     {"papers", Json::array()},
            {"options", Json::array()}};
  for (const Paper& paper : method.papers)
    json["papers"].push_back({{"title", paper.title}, {"arxiv", paper.arxiv}, {"venue", paper.venue}});
  if (method.options) {
    for (const Option& option : method.options->list()) {
      json["options"].push_back({{"name", option.info.name},
                                 {"accepts", option.info.type_text()},
                                 {"default", option.info.fallback},
                                 {"help", option.info.help},
                                 {"source", option.info.source}});
    }
  }
  return json;
}

Command describe(MethodsOptions& o) {
  Command command("methods", "list the methods that are built in");
  command.options("Options", methods_options(), &o)
      .example("kullback methods --family alignment")
      .example("kullback methods --json");
  return command;
}

int run(const std::vector<std::string>& arguments) {
  MethodsOptions o;
  if (!describe(o).parse(arguments)) return exit_success;
  std::vector<std::string> known;
  for (const Family family : families()) known.push_back(family_name(family));
  if (!o.family.empty() && std::find(known.begin(), known.end(), o.family) == known.end()) {
    fail("option --family: unknown family \"{}\"{}; it is one of {}", o.family, suggestion(o.family, known),
         listing(known));
  }
  Json json = Json::array();
  Table table{
      .title = "",
      .columns = {text_column("method"), text_column("family"), text_column("run by"), text_column("what it is")},
      .rows = {}};
  for (const Method& method : methods()) {
    if (!o.family.empty() && family_name(method.family) != o.family) continue;
    json.push_back(method_json(method));
    table.rows.push_back(
        {Cell(method.name), Cell(family_name(method.family)), Cell(runner(method)), Cell(method.summary)});
  }
  if (o.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}\n`kullback explain NAME` tells all of one.\n", table_terminal(table, terminal_style(stdout)));
  }
  return exit_success;
}

struct ExplainOptions {
  bool divergences = false;
  std::string plot;
  bool json = false;
};

const Options<ExplainOptions>& explain_options() {
  static const auto options =
      Options<ExplainOptions>()
          .option("divergences", &ExplainOptions::divergences, "list the divergences, without a NAME")
          .option("plot", &ExplainOptions::plot, "of a divergence: an SVG file of where a student lands under it")
          .option("json", &ExplainOptions::json, "the same as JSON");
  return options;
}

Command describe_explain(ExplainOptions& o, std::vector<std::string>& names) {
  Command command(
      "explain", "what a method or a divergence is, when to use it, and its options",
      "A method's page: its formula, when to use it, its options and papers. A divergence's page: its generator,\n"
      "what it says of laws that differ in one way or another, and where a student lands that is fitted under it.");
  command
      .arguments("NAME", &names, "a method, as `kullback methods` lists it, or a divergence such as kl or js:0.3", 0, 1)
      .options("Options", explain_options(), &o)
      .example("kullback explain dpo")
      .example("kullback explain js:0.3 --plot js.svg")
      .example("kullback explain --divergences");
  return command;
}

void list_divergences(bool as_json) {
  Table table{.title = "",
              .columns = {text_column("divergence"), text_column("parameter"), text_column("also called"),
                          text_column("what it is")},
              .rows = {}};
  for (const DivergenceInfo& info : known_divergences()) {
    const std::string parameter =
        info.parameter.empty() ? "" : fmt::format("{} {}, else {}", info.parameter, info.range, info.default_value);
    table.rows.push_back({Cell(info.name), Cell(parameter), Cell(listing(info.aliases)), Cell(info.summary)});
  }
  if (as_json) {
    fmt::print("{}\n", table_json(table).dump(2));
  } else {
    fmt::print("{}\n`kullback explain NAME` tells all of one.\n", table_terminal(table, terminal_style(stdout)));
  }
}

const Method& method_or_error(const std::string& name) {
  std::vector<std::string> known;
  for (const Method& method : methods()) {
    if (method.name == name) return method;
    known.push_back(method.name);
  }
  for (const DivergenceInfo& info : known_divergences()) known.push_back(info.name);
  fail(
      "neither a method nor a divergence is named '{}'{}; `kullback methods` and `kullback explain --divergences` list "
      "them",
      name, suggestion(name, known));
}

int run_explain(const std::vector<std::string>& arguments) {
  ExplainOptions o;
  std::vector<std::string> names;
  if (!describe_explain(o, names).parse(arguments)) return exit_success;
  if (names.empty() != o.divergences) fail("kullback explain takes either a NAME or --divergences");
  if (o.divergences) {
    list_divergences(o.json);
  } else if (names_divergence(names.front())) {
    const DivergenceGuide guide = divergence_guide(names.front());
    if (!o.plot.empty()) write_file(o.plot, svg(landing_plot(guide)));
    fmt::print("{}", o.json ? guide_json(guide).dump(2) + "\n" : explain(guide));
  } else {
    const Method& method = method_or_error(names.front());
    if (!o.plot.empty()) fail("option --plot: '{}' is a method; only divergences have a picture", method.name);
    fmt::print("{}", o.json ? method_json(method).dump(2) + "\n" : explain(method));
  }
  return exit_success;
}

const RegisteredProgram methods_program{{"methods", "list the methods that are built in",
                                         [] {
                                           static MethodsOptions o;
                                           return describe(o);
                                         },
                                         run}};
const RegisteredProgram explain_program{{"explain", "what a method or a divergence is, when to use it, and its options",
                                         [] {
                                           static ExplainOptions o;
                                           static std::vector<std::string> names;
                                           return describe_explain(o, names);
                                         },
                                         run_explain}};

}  // namespace
}  // namespace kullback
