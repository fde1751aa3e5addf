#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/lm/save.h"
#include "kullback/train/soup.h"

namespace kullback {
namespace {

struct SoupOptions {
  std::vector<double> weights;
  std::string base, output;
  bool json = false;
};

const Options<SoupOptions>& soup_options() {
  using O = SoupOptions;
  static const auto options =
      Options<O>()
          .option("weights", &O::weights, non_negative, "what each model weighs; equal where left out")
          .option("base", &O::base, "the model that adapters among them are for")
          .option("output", &O::output, "the Hugging Face folder to write; must not exist yet, or be empty")
          .option("json", &O::json, "one JSON object of what was written");
  return options;
}

Command describe(SoupOptions& o, std::vector<std::string>& models) {
  Command command(
      "soup", "average the weights of models that come from one",
      "Writes the weighted average of two or more models of one layout, such as runs of `kullback sft` with other "
      "seeds\n"
      "from the same model: a soup, which often does better than each, and the reference of `--method salsa`. A model\n"
      "may be the folder of a PEFT adapter, which is merged into --base first. Configuration, tokenizer and template "
      "are\n"
      "those of the first.");
  command.arguments("MODEL", &models, "names, GGUF files, Hugging Face folders or adapters", 2)
      .options("Options", soup_options(), &o)
      .example("kullback soup first/ second/ --output averaged")
      .example(
          "kullback soup smollm2-135m-instruct runs/demo/adapter --base smollm2-135m-instruct --weights 0.3,0.7 "
          "--output between");
  return command;
}

int run(const std::vector<std::string>& arguments) {
  SoupOptions o;
  std::vector<std::string> names;
  if (!describe(o, names).parse(arguments)) return exit_success;
  if (o.output.empty()) fail("kullback soup: --output is missing");
  if (o.weights.empty()) o.weights.assign(names.size(), 1);
  if (o.weights.size() != names.size())
    fail("option --weights: {} weights are given for {} models", o.weights.size(), names.size());
  const double sum = std::accumulate(o.weights.begin(), o.weights.end(), 0.0);
  if (sum <= 0) fail("option --weights: their sum is 0");
  for (double& weight : o.weights) weight /= sum;
  std::vector<Model> models;
  for (const std::string& name : names) models.push_back(load_merged(name, o.base, "kullback soup"));
  save_model(soup(models, o.weights), o.output);
  if (o.json) {
    fmt::print("{}\n", Json{{"models", names}, {"weights", o.weights}, {"to", o.output}}.dump());
  } else {
    fmt::print("{}: written\n", o.output);
  }
  return exit_success;
}

const RegisteredProgram program{{"soup", "average the weights of models that come from one",
                                 [] {
                                   static SoupOptions o;
                                   static std::vector<std::string> models;
                                   return describe(o, models);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
