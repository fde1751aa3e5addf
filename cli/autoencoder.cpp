#include <filesystem>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/align/autoencoder_training.h"
#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/report/progress.h"
#include "kullback/train/response_batch.h"

namespace kullback {
namespace {

struct AutoencoderOptions {
  std::string model, output;
  int64_t layer = 0;
  AutoencoderTraining training;
  bool json = false;
};

const Options<AutoencoderOptions>& autoencoder_options() {
  using O = AutoencoderOptions;
  static const auto options =
      Options<O>()
          .option("model", &O::model, "the model whose hidden states are read")
          .option("layer", &O::layer, non_negative,
                  "after which block, from 1; 0: the last states, after the final norm. As --layer of fpo")
          .option("output", &O::output, "the safetensors file to write")
          .option("json", &O::json, "one JSON object of what was measured");
  return options;
}

const Options<AutoencoderTraining>& training_options() {
  using O = AutoencoderTraining;
  static const auto options =
      Options<O>()
          .option("features", &O::features, at_least(1), "how many there are")
          .option("l1", &O::l1, positive, "weight of the features' sum: more is sparser", "for small models")
          .option("steps", &O::steps, at_least(1), "steps of Adam")
          .option("batch-size", &O::batch_size, at_least(1), "tokens a step")
          .option("learning-rate", &O::learning_rate, positive, "of Adam; falls over the last fifth")
          .option("seed", &O::seed, at_least(0), "of the first values and the order of tokens");
  return options;
}

Command describe(AutoencoderOptions& o, DataOptions& data) {
  Command command(
      "autoencoder", "train a sparse autoencoder of a model's hidden states, for --method fpo",
      "Reads the hidden states at the response tokens of the rows once, trains an autoencoder on them that gives each\n"
      "state back from few features, and says how well it does on rows that were held out. The states are held in\n"
      "memory (tokens x width x 4 bytes): --max-rows bounds them. Minutes, so that nothing is kept of a run that is\n"
      "stopped.\n"
      "Trained are W_enc, b_enc, W_dec and b_dec, with plain ReLUs: --sae relu. The file's thresholds are 0, not\n"
      "learnt, so that --sae jumprelu reads the same features.");
  command.options("Options", autoencoder_options(), &o)
      .options("Training", training_options(), &o.training)
      .options("Data", data_options(), &data)
      .example("kullback autoencoder --model smollm2-135m-instruct --data pairs.jsonl --output features.safetensors")
      .example(
          "kullback align --method fpo --autoencoder features.safetensors --model smollm2-135m-instruct --data "
          "pairs.jsonl --output runs/fpo");
  return command;
}

/// The states at all response tokens. [N,D] float32
at::Tensor states(const Model& model, const SupervisedData& data, int64_t layer, const char* label) {
  const at::NoGradGuard no_grad;
  Progress progress(label, std::ssize(data.examples));
  std::vector<at::Tensor> all;
  int64_t done = 0;
  for (const Example& example : data.examples) {
    const Sequence* sequence = &example.sequence;
    const ResponseBatch batch = response_batch({&sequence, 1});
    if (batch.labels.numel() > 0)
      all.push_back((layer > 0 ? response_states(model.transformer, batch, AdapterUse::on, layer).after_layer
                               : response_hidden(model.transformer, batch))
                        .to(at::kFloat));
    progress.update(++done);
  }
  progress.finish();
  if (all.empty()) fail("{}: no token of a response", data.path);
  return at::cat(all);
}

int run(const std::vector<std::string>& arguments) {
  AutoencoderOptions o;
  DataOptions data;
  if (!describe(o, data).parse(arguments)) return exit_success;
  for (const auto& [name, value] : {std::pair{"model", o.model}, {"data", data.data}, {"output", o.output}}) {
    if (value.empty()) fail("kullback autoencoder: --{} is missing", name);
  }
  if (std::filesystem::exists(o.output)) fail("{}: there is something already; it is not written over", o.output);
  const Model model = load_model(o.model);
  if (o.layer > model.config().layers)
    fail("option --layer: there is no block {} in a model of {}", o.layer, model.config().layers);
  SupervisedData training = load_prompts(data.data, model, data);
  DataOptions whole = data;
  whole.max_rows = 0;
  const SupervisedData held_out = data.eval_data.empty()
                                      ? hold_out(training, data.eval_fraction, static_cast<uint64_t>(o.training.seed))
                                      : load_prompts(data.eval_data, model, whole);
  if (held_out.examples.empty()) fail("option --eval-fraction: holds out no row to measure on");
  const at::Tensor hidden = states(model, training, o.layer, "states"),
                   others = states(model, held_out, o.layer, "held out");
  Progress progress("train", o.training.steps);
  const Autoencoder made = train_autoencoder(hidden, o.training, [&](int64_t step, double loss) {
    progress.update(step, {{"loss", loss}});
  });
  progress.finish();
  write_autoencoder(o.output, made);
  const AutoencoderFigures figures = autoencoder_figures(made, others);
  if (o.json) {
    fmt::print("{}\n", Json{{"to", o.output},
                            {"tokens", hidden.size(0)},
                            {"held_out_tokens", others.size(0)},
                            {"unexplained", figures.unexplained},
                            {"active", figures.active},
                            {"dead", figures.dead}}
                           .dump());
  } else {
    fmt::print(
        "{}: {} features of {} tokens' states; of {} held-out tokens {:.1f} % of the variance is left unexplained, "
        "{:.1f} "
        "features are active a token, {:.1f} % are active at none\n",
        o.output, o.training.features, hidden.size(0), others.size(0), 100 * figures.unexplained, figures.active,
        100 * figures.dead);
  }
  return exit_success;
}

const RegisteredProgram program{{"autoencoder", "train a sparse autoencoder of a model's hidden states",
                                 [] {
                                   static AutoencoderOptions o;
                                   static DataOptions data;
                                   return describe(o, data);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
