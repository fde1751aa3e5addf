#include <filesystem>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/align/gradient_diagnosis.h"
#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/report/progress.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

struct DiagnoseOptions {
  std::string model, adapter, reference_model;
  DiagnosedParameters parameters = DiagnosedParameters::all;
  int64_t pairs = 512;
  std::string output;
  bool json = false;
};

const Options<DiagnoseOptions>& diagnose_options() {
  using O = DiagnoseOptions;
  static const auto options =
      Options<O>()
          .option("model", &O::model, "a name known to `kullback pull`, a GGUF file or a Hugging Face folder")
          .option("adapter", &O::adapter, "a PEFT adapter to put on it; without it the model is the reference too")
          .option("reference-model", &O::reference_model, "compare with this model instead; same tokenizer")
          .option("parameters", &O::parameters,
                  {{"all", DiagnosedParameters::all},
                   {"lora", DiagnosedParameters::lora},
                   {"head", DiagnosedParameters::head}},
                  "whose gradients: all weights', the adapter's, or the head's alone")
          .option("pairs", &O::pairs, at_least(1), "how many pairs of the data, one at a time", "authors' code")
          .option("output", &O::output, "write every pair's numbers to this JSONL file")
          .option("json", &O::json, "print JSON instead of the table");
  return options;
}

struct DiagnoseJob {
  DiagnoseOptions diagnose;
  DataOptions data;
  EntanglementOptions entanglement;
};

Command describe(DiagnoseJob& job) {
  Command command("diagnose", "look at a model before training: `kullback diagnose gradients`",
                  "Says for each preference pair which way one step of a loss would move the two responses' "
                  "log-probabilities,\nto first order, and whether their gradients are entangled.");
  command.options("Options", diagnose_options(), &job.diagnose)
      .options("Data", data_options(), &job.data)
      .options("Loss", *find_method("gradient-entanglement").options, &job.entanglement)
      .example("kullback diagnose gradients --model smollm2-135m-instruct --data pairs.jsonl --pairs 32")
      .example("kullback diagnose gradients --model my-model/ --data pairs.jsonl --loss dpop --parameters head");
  return command;
}

int run(const std::vector<std::string>& given) {
  std::vector<std::string> arguments = given;
  const std::vector<std::string> subjects{"gradients"};
  if (!arguments.empty() && !arguments[0].starts_with("-")) {
    if (arguments[0] != "gradients")
      fail("kullback diagnose: unknown subject \"{}\"{}; there is: gradients", arguments[0],
           suggestion(arguments[0], subjects));
    arguments.erase(arguments.begin());
  } else if (arguments.empty()) {
    fail("kullback diagnose: what? There is: gradients");
  }
  DiagnoseJob job;
  if (!describe(job).parse(arguments)) return exit_success;
  const DiagnoseOptions& o = job.diagnose;
  for (const auto& [name, value] : {std::pair{"model", o.model}, {"data", job.data.data}}) {
    if (value.empty()) fail("kullback diagnose: --{} is missing", name);
  }
  job.data.max_rows = job.data.max_rows == 0 ? o.pairs : std::min(job.data.max_rows, o.pairs);
  Model model = load_model(o.model);
  if (!o.adapter.empty()) load_adapter(model.transformer, o.adapter);
  const PreferenceData data = load_preferences(job.data.data, model, job.data);
  std::optional<Model> other;
  if (!o.reference_model.empty()) other = load_model(o.reference_model);
  Progress progress("pairs", std::ssize(data.pairs));
  const GradientDiagnosis d = diagnose_gradients(
      model.transformer,
      other ? Reference{&other->transformer, AdapterUse::on} : Reference{&model.transformer, AdapterUse::off},
      data.pairs, o.parameters, job.entanglement, [&](int64_t done) { progress.update(done); });
  progress.finish();

  const Entanglement& e = d.entanglement;
  const auto mean = [](const at::Tensor& values) { return values.to(at::kDouble).mean().item<double>(); };
  const at::Tensor up_w = e.chosen_change > 0, up_l = e.rejected_change > 0;
  Table table{.title = fmt::format("One step of {} pairs", d.lines.size()),
              .columns = {text_column("what"), number_column("value")},
              .rows = {{"mean condition", mean(e.condition)},
                       {"mean cosine of the gradients", mean(e.cosine)},
                       {"chosen up, rejected down", mean(up_w & ~up_l)},
                       {"both up", mean(up_w & up_l)},
                       {"both down", mean(~up_w & ~up_l)},
                       {"chosen down, rejected up", mean(~up_w & up_l)},
                       {"mean change of chosen", mean(e.chosen_change)},
                       {"mean change of rejected", mean(e.rejected_change)},
                       {"the same after a normalised step, chosen", mean(e.normalised_chosen_change)},
                       {"the same after a normalised step, rejected", mean(e.normalised_rejected_change)}}};
  if (o.json) {
    fmt::print("{}\n", table_json(table).dump(1));
  } else {
    fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  }
  if (o.output.empty()) return exit_success;
  std::string lines;
  for (size_t i = 0; i < d.lines.size(); ++i) {
    const auto at = [&](const at::Tensor& values) { return values[static_cast<int64_t>(i)].item<double>(); };
    lines += Json{{"line", d.lines[i]},
                  {"loss", at(e.loss)},
                  {"inner", at(d.gradients.inner)},
                  {"norm_chosen", at(d.gradients.chosen_norm)},
                  {"norm_rejected", at(d.gradients.rejected_norm)},
                  {"cosine", at(e.cosine)},
                  {"condition", at(e.condition)},
                  {"weight_chosen", at(e.chosen_weight)},
                  {"weight_rejected", at(e.rejected_weight)},
                  {"change_chosen", at(e.chosen_change)},
                  {"change_rejected", at(e.rejected_change)}}
                 .dump() +
             "\n";
  }
  write_file(o.output, lines);
  return exit_success;
}

const RegisteredProgram program{{"diagnose", "say which way a step would move each pair's log-probabilities",
                                 [] {
                                   static DiagnoseJob job;
                                   return describe(job);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
