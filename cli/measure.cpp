#include <cmath>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/measure/laws.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

struct MeasureOptions {
  std::vector<std::string> divergence{"all"};
  NumbersAs numbers = NumbersAs::probabilities;
  double smoothing = 0;
  bool json = false;
};

const Options<MeasureOptions>& measure_options() {
  static const auto options = Options<MeasureOptions>()
                                  .option("divergence", &MeasureOptions::divergence,
                                          "names such as kl, js:0.3 or renyi:2, separated by commas, or all")
                                  .option("numbers", &MeasureOptions::numbers,
                                          {{"probabilities", NumbersAs::probabilities},
                                           {"counts", NumbersAs::counts},
                                           {"logits", NumbersAs::logits}},
                                          "what the numbers of a law are; logits may be log-probabilities")
                                  .option("smoothing", &MeasureOptions::smoothing, non_negative, "added to each count")
                                  .option("json", &MeasureOptions::json, "one JSON object instead of a table");
  return options;
}

Command describe(MeasureOptions& o, std::vector<std::string>& files) {
  Command command(
      "measure", "divergences between two laws: probabilities, counts, logits, Gaussians or Dirichlets",
      "Each law is a JSON or CSV file, or one file holds both. JSON: [0.5, 0.5], {\"yes\": 3, \"no\": 1},\n"
      "{\"mean\": [0, 1], \"covariance\": [[1, 0], [0, 2]]} (or \"variance\": [1, 2]), {\"concentration\": [1, 2]};\n"
      "one file: {\"p\": ..., \"q\": ...}. CSV: a line an outcome, `number` or `name,number`; one file: `name,p,q`.\n"
      "Named outcomes are matched by name. All are D(p||q) in nats, p the first law.");
  command.arguments("FILE", &files, "p and q, or one file with both", 1, 2)
      .options("Options", measure_options(), &o)
      .example("kullback measure p.json q.json")
      .example("kullback measure tables.csv --numbers counts --smoothing 0.5 --divergence kl,js,renyi:2")
      .example("kullback measure gaussians.json --divergence all --json");
  return command;
}

/// JSON has no infinity.
Json json_number(double x) { return std::isfinite(x) ? Json(x) : Json(std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"); }

int run(const std::vector<std::string>& arguments) {
  MeasureOptions o;
  std::vector<std::string> files;
  if (!describe(o, files).parse(arguments)) return exit_success;
  const std::vector<Measured> measured = measure(read_laws(files, o.numbers), o.divergence, o.numbers, o.smoothing);
  if (o.json) {
    Json json = Json::object();
    for (const Measured& m : measured) json[m.name] = json_number(m.value);
    fmt::print("{}\n", json.dump());
    return exit_success;
  }
  Table table{.title = "",
              .columns = {text_column("divergence"), number_column("D(p||q)"), text_column("what it is")},
              .rows = {}};
  for (const Measured& m : measured) table.rows.push_back({Cell(m.name), Cell(m.value), Cell(m.what)});
  fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  return exit_success;
}

const RegisteredProgram program{{"measure",
                                 "divergences between two laws: probabilities, counts, logits, Gaussians or Dirichlets",
                                 [] {
                                   static MeasureOptions o;
                                   static std::vector<std::string> files;
                                   return describe(o, files);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
