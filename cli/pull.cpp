#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/io/pull.h"

namespace kullback {
namespace {

struct PullOptions {
  bool json = false;
};

const Options<PullOptions>& pull_options() {
  static const auto options =
      Options<PullOptions>().option("json", &PullOptions::json, "one JSON object with the name and the file");
  return options;
}

Command describe(PullOptions& o, std::vector<std::string>& names) {
  std::string known = "Models:\n";
  for (const PullableModel& model : pullable_models())
    known += fmt::format("  {:<24} {}\n", model.name, model.description);
  Command command("pull", "get a small free model to begin with",
                  known +
                      "\nThe file is kept in the cache folder ($KULLBACK_CACHE, else $XDG_CACHE_HOME/kullback, else "
                      "~/.cache/kullback), and\n"
                      "--model NAME names it everywhere. Any other model: get its GGUF file or Hugging Face folder by "
                      "your usual means\n"
                      "and give its path as --model.");
  command.arguments("NAME", &names, "one of the models above", 1, 1)
      .options("Options", pull_options(), &o)
      .example("kullback pull smollm2-135m-instruct");
  return command;
}

int run(const std::vector<std::string>& arguments) {
  PullOptions o;
  std::vector<std::string> names;
  if (!describe(o, names).parse(arguments)) return exit_success;
  const std::string file = pull_model(names.front()).string();
  fmt::print("{}\n", o.json ? Json{{"name", names.front()}, {"file", file}}.dump() : file);
  return exit_success;
}

const RegisteredProgram program{{"pull", "get a small free model to begin with",
                                 [] {
                                   static PullOptions o;
                                   static std::vector<std::string> names;
                                   return describe(o, names);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
