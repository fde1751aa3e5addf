#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

struct ClaimOptions {
  bool all = false, list = false, with_baseline = false, json = false;
  std::string plot;
};

const Options<ClaimOptions>& claim_options() {
  static const auto options = Options<ClaimOptions>()
                                  .option("all", &ClaimOptions::all, "every claim")
                                  .option("list", &ClaimOptions::list, "what claims there are; nothing is run")
                                  .option("with-baseline", &ClaimOptions::with_baseline,
                                          "show the experiment with the baseline in the method's place; it has to fail")
                                  .option("plot", &ClaimOptions::plot, "a folder to write the plots to, CLAIM.svg")
                                  .option("json", &ClaimOptions::json, "one JSON object a claim and line");
  return options;
}

Command describe(ClaimOptions& o, std::vector<std::string>& names) {
  Command command(
      "claim", "run the experiments behind published statements and say whether they hold",
      "Each claim is shown where everything can be enumerated, in seconds, with fixed seeds and stated margins. It\n"
      "passes when all that is asserted holds for the method and something of it fails with the baseline in the\n"
      "method's place. Exit status: 0 all pass, 1 one does not.");
  command.arguments("NAME", &names, "claims, or methods for all of theirs")
      .options("Options", claim_options(), &o)
      .example("kullback claim dpo")
      .example("kullback claim --all")
      .example("kullback claim dpo --plot plots/");
  return command;
}

Json json_of(const Claim& claim, const ClaimResult& result, bool passed) {
  Json json{{"claim", claim.name},
            {"method", claim.method},
            {"passed", passed},
            {"assertions", Json::array()},
            {"tables", Json::array()}};
  for (const Assertion& a : result.assertions) {
    json["assertions"].push_back({{"what", a.what},
                                  {"value", a.value},
                                  {"must", a.must == Assertion::Must::be_at_most ? "be at most" : "be at least"},
                                  {"limit", a.limit},
                                  {"holds", a.holds()}});
  }
  for (const Table& table : result.tables)
    json["tables"].push_back({{"title", table.title}, {"rows", table_json(table)}});
  return json;
}

void print(const ClaimResult& result) {
  const TerminalStyle style = terminal_style(stdout);
  for (const Table& table : result.tables) fmt::print("{}\n", table_terminal(table, style));
  Table asserted{.title = "Asserted",
                 .columns = {text_column(""), text_column("what"), number_column("is"), text_column("must be")}};
  for (const Assertion& a : result.assertions) {
    asserted.rows.push_back(
        {a.holds() ? Cell("holds", Tone::good) : Cell("FAILS", Tone::bad), a.what, a.value,
         fmt::format("{} {}", a.must == Assertion::Must::be_at_most ? "at most" : "at least", number_text(a.limit))});
  }
  fmt::print("{}", table_terminal(asserted, style));
}

/// Runs one claim; true if it passes.
bool run_claim(const Claim& claim, const ClaimOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  const ClaimResult result = claim.run(o.with_baseline);
  const bool fails_with_baseline = !o.with_baseline && !claim.run(true).passed();
  const bool passed = result.passed() && (o.with_baseline || fails_with_baseline);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!o.plot.empty()) {
    for (size_t i = 0; i < result.plots.size(); ++i) {
      const std::string number = i == 0 ? "" : fmt::format("-{}", i + 1);
      write_file(std::filesystem::path(o.plot) / (claim.name + number + ".svg"), svg(result.plots[i]));
    }
  }
  if (o.json) {
    Json json = json_of(claim, result, passed);
    if (!o.with_baseline) json["fails_with_baseline"] = fails_with_baseline;
    fmt::print("{}\n", json.dump());
    return passed;
  }
  fmt::print("== {}{}\n{}\nThe source: {}\n\n", claim.name,
             o.with_baseline ? fmt::format(", with the baseline ({})", claim.baseline) : "", claim.statement,
             claim.paper_says);
  print(result);
  fmt::print("\n{} {} in {}", passed ? "PASS" : "FAIL", claim.name, duration_text(seconds));
  if (!o.with_baseline) {
    fmt::print("; with its baseline ({}) it {}", claim.baseline,
               fails_with_baseline ? "fails, as it must" : "holds too, so that it shows nothing");
  }
  fmt::print("\n\n");
  return passed;
}

void list(bool json) {
  Table table{.title = "", .columns = {text_column("claim"), text_column("method"), text_column("what is shown")}};
  for (const Claim& claim : claims()) table.rows.push_back({claim.name, claim.method, claim.statement});
  if (json) {
    fmt::print("{}\n", table_json(table).dump(1));
  } else {
    fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  }
}

int run(const std::vector<std::string>& arguments) {
  ClaimOptions o;
  std::vector<std::string> names;
  if (!describe(o, names).parse(arguments)) return exit_success;
  if (o.list) return list(o.json), exit_success;
  if (o.all == !names.empty()) fail("kullback claim: give names of claims, or --all; --list shows them");
  std::vector<Claim> chosen = o.all ? claims() : std::vector<Claim>();
  for (const std::string& name : names) {
    for (const Claim& claim : find_claims(name)) chosen.push_back(claim);
  }
  if (std::error_code problem; !o.plot.empty() && (std::filesystem::create_directories(o.plot, problem), problem)) {
    fail("option --plot: {}: {}", o.plot, problem.message());
  }
  int failed = 0;
  for (const Claim& claim : chosen) failed += run_claim(claim, o) ? 0 : 1;
  if (chosen.size() > 1 && !o.json)
    fmt::print("{} of {} claims pass\n", chosen.size() - static_cast<size_t>(failed), chosen.size());
  return failed == 0 ? exit_success : exit_not_passed;
}

const RegisteredProgram program{{"claim", "run the experiments behind published statements",
                                 [] {
                                   static ClaimOptions o;
                                   static std::vector<std::string> names;
                                   return describe(o, names);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
