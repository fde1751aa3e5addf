#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

struct CheckOptions {
  std::string model;
  bool json = false;
};

const Options<CheckOptions>& check_options() {
  static const auto options =
      Options<CheckOptions>()
          .option("model", &CheckOptions::model,
                  "the model or folder to check, where the file does not name it or has none beside it")
          .option("json", &CheckOptions::json, "one JSON object a file");
  return options;
}

Command describe(CheckOptions& o, std::vector<std::string>& files) {
  Command command(
      "check", "run golden fixtures through the code that training uses",
      "A fixture holds inputs and the numbers that an independent program computed from them: a method's loss, its\n"
      "logged parts and gradients, a tokenizer's ids, a language model's log-probabilities, a trainer's steps. One "
      "line\n"
      "a case with the largest difference. Exit status 0 when all are within tolerance, 1 when not.");
  command.arguments("FIXTURE.json", &files, "fixture files", 1)
      .options("Options", check_options(), &o)
      .example("kullback check fixtures/dpo.json");
  return command;
}

void print(const CheckReport& report) {
  size_t passed = 0;
  for (const CheckResult& r : report.results) {
    passed += r.passed;
    fmt::print("{}  {}: largest difference {:.2g}, tolerance {:g}{}\n", r.passed ? "ok    " : "FAILED", r.name,
               r.largest_difference, r.tolerance, r.at.empty() ? "" : " (" + r.at + ")");
  }
  fmt::print("{}: {}, {} of {} cases passed\n", report.file, report.kind, passed, report.results.size());
}

Json to_json(const CheckReport& report) {
  Json json{{"file", report.file}, {"kind", report.kind}, {"passed", report.passed()}, {"cases", Json::array()}};
  for (const CheckResult& r : report.results) {
    json["cases"].push_back({{"name", r.name},
                             {"passed", r.passed},
                             {"largest_difference", r.largest_difference},
                             {"tolerance", r.tolerance},
                             {"at", r.at}});
  }
  return json;
}

int run(const std::vector<std::string>& arguments) {
  CheckOptions o;
  std::vector<std::string> files;
  if (!describe(o, files).parse(arguments)) return exit_success;
  bool passed = true;
  for (const std::string& file : files) {
    const CheckReport report = check_file(file, o.model);
    if (o.json) {
      fmt::print("{}\n", to_json(report).dump());
    } else {
      print(report);
    }
    std::fflush(stdout);
    passed = passed && report.passed();
  }
  return passed ? exit_success : exit_not_passed;
}

const RegisteredProgram program{{"check", "run golden fixtures through the code that training uses",
                                 [] {
                                   static CheckOptions o;
                                   static std::vector<std::string> files;
                                   return describe(o, files);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
