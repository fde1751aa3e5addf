#include <cstdio>
#include <iostream>
#include <iterator>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/model.h"
#include "kullback/lm/save.h"
#include "kullback/train/data.h"

namespace kullback {
namespace {

struct GenerateOptions {
  std::string model, adapter, prompt, system;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  int64_t max_new_tokens = 256;
  int64_t seed = 0;
  bool raw = false;
};

const Options<GenerateOptions>& generate_options() {
  using O = GenerateOptions;
  static const auto options =
      Options<O>()
          .option("model", &O::model, "a name known to `kullback pull`, a GGUF file or a Hugging Face folder")
          .option("adapter", &O::adapter, "a PEFT adapter to put on it, such as RUN/adapter")
          .option("prompt", &O::prompt, "what to answer; - reads it from standard input")
          .option("system", &O::system, "a system message before the prompt")
          .option("temperature", &O::temperature, non_negative, "0: always the likeliest token")
          .option("top-k", &O::top_k, at_least(0), "draw among the k likeliest tokens only; 0: all")
          .option("top-p", &O::top_p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                  "draw among the likeliest tokens that make up this probability")
          .option("min-p", &O::min_p, fraction, "draw among tokens of at least this share of the largest probability")
          .option("max-new-tokens", &O::max_new_tokens, at_least(1), "stop after so many tokens")
          .option("seed", &O::seed, at_least(0), "of the draws")
          .option("raw", &O::raw, "continue the prompt as it stands, without the chat template");
  return options;
}

Command describe(GenerateOptions& o) {
  Command command("generate", "answer a prompt",
                  "Applies the model's chat template and prints the answer alone on standard output, as it is made.");
  command.options("Options", generate_options(), &o)
      .example("kullback generate --model smollm2-135m-instruct --prompt \"What is the capital of France?\"")
      .example(
          "kullback generate --model smollm2-135m-instruct --adapter runs/demo/adapter --prompt \"Why is the sky "
          "blue?\" --temperature 0.7");
  return command;
}

/// Prints text as it grows, holding back bytes of a character that is not complete yet.
class Printer {
 public:
  explicit Printer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(int32_t id) {
    ids_.push_back(id);
    const std::string text = tokenizer_.decode(ids_, /*skip_special=*/true);
    if (!text.ends_with("\xef\xbf\xbd")) flush(text);
  }
  void finish() {
    flush(tokenizer_.decode(ids_, true));
    fmt::print("\n");
  }

 private:
  void flush(const std::string& text) {
    std::fwrite(text.data() + printed_, 1, text.size() - printed_, stdout);
    std::fflush(stdout);
    printed_ = text.size();
  }
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t printed_ = 0;
};

int run(const std::vector<std::string>& arguments) {
  GenerateOptions o;
  if (!describe(o).parse(arguments)) return exit_success;
  if (o.model.empty()) fail("kullback generate: --model is missing");
  if (o.prompt.empty()) fail("kullback generate: --prompt is missing");
  if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  Model model = load_model(o.model);
  if (!o.adapter.empty()) load_adapter(model.transformer, o.adapter);

  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", o.prompt});
  const auto format = o.raw ? DataOptions::TextFormat::raw : DataOptions::TextFormat::chat;
  GenerationOptions options{
      .sampling = {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .min_p = o.min_p},
      .max_new_tokens = o.max_new_tokens,
      .stop_ids = model.generation.stop_ids,
      .seed = static_cast<uint64_t>(o.seed),
      .streams = {}};
  Printer printer(model.text());
  generate(model.transformer, {encode_prompt(model, messages, format)}, options, [&](size_t, int32_t id) {
    printer.add(id);
    return true;
  });
  printer.finish();
  return exit_success;
}

const RegisteredProgram program{{"generate", "answer a prompt",
                                 [] {
                                   static GenerateOptions o;
                                   return describe(o);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
