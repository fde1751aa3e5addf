#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/decode/sampling_options.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"
#include "kullback/lm/model_beams.h"
#include "kullback/train/data.h"

namespace kullback {
namespace {

struct GenerateOptions {
  std::string model, adapter, prompt, prompts, system, chat_template;
  WeightType weights = WeightType::float32;
  bool chat = false;
  double temperature = 0;
  int64_t max_new_tokens = 256;
  std::vector<std::string> stop;
  int64_t samples = 1;
  int64_t slots = 32;
  int64_t num_beams = 1;
  double length_penalty = 1;
  bool early_stopping = false;
  int64_t seed = 0;
  int64_t top_logps = 0;
  bool logps = false, json = false;
  bool raw = false;
  Sampling filters;
};

const Options<GenerateOptions>& generate_options() {
  using O = GenerateOptions;
  static const auto options =
      Options<O>()
          .option("model", &O::model, "a name known to `kullback pull`, a GGUF file or a Hugging Face folder")
          .option("adapter", &O::adapter, "a PEFT adapter to put on it, such as RUN/adapter")
          .option(
              "weights", &O::weights, weight_types(),
              "how the model's matrices are kept; bfloat16 takes half the memory and time, int8 (GGUF's Q8_0) a "
              "quarter. Everything else stays float32; `kullback compare M M --b-weights int8` says what it changes")
          .option("prompt", &O::prompt, "what to answer; - reads it from standard input")
          .option("prompts", &O::prompts,
                  "a JSON Lines file with a column `prompt` (a text or messages); one JSON object an answer is printed")
          .option("chat", &O::chat, "talk: each line of standard input is answered, with what was said before in mind")
          .option("system", &O::system, "a system message before the prompt")
          .option("chat-template", &O::chat_template, "use this template instead of the model's own")
          .option("raw", &O::raw, "continue the prompt as it stands, without the chat template")
          .option("max-new-tokens", &O::max_new_tokens, at_least(1), "stop after so many tokens")
          .option("stop", &O::stop, "texts that end an answer, which is cut before them")
          .option("samples", &O::samples, at_least(1), "answers to each prompt, with streams of draws of their own")
          .option("slots", &O::slots, at_least(1), "sequences that are continued at once")
          .option("logps", &O::logps, "with JSON: log-probabilities of the tokens, model's and sampler's")
          .option("top-logps", &O::top_logps, at_least(0),
                  "with JSON: so many likeliest tokens at each step, with log-probabilities")
          .option("num-beams", &O::num_beams, at_least(1),
                  "with --prompt: search so many beams for the likeliest answer instead of drawing one")
          .option("length-penalty", &O::length_penalty, NumberRange{},
                  "beams: a finished one scores log-probability / length^this; above 0 favours longer ones")
          .option("early-stopping", &O::early_stopping, "beams: stop as soon as --num-beams have ended")
          .option("seed", &O::seed, at_least(0), "of the draws")
          .option("json", &O::json, "with --prompt: one JSON object an answer, as --prompts prints them")
          .option("temperature", &O::temperature, non_negative, "0: always the likeliest token");
  return options;
}

Command describe(GenerateOptions& o) {
  Command command("generate", "answer a prompt, many prompts, or in a conversation",
                  "Applies the model's chat template and prints the answer alone on standard output, as it is made.");
  command.options("Options", generate_options(), &o)
      .options("Sampling", filter_options(), &o.filters)
      .example("kullback generate --model smollm2-135m-instruct --prompt \"What is the capital of France?\"")
      .example(
          "kullback generate --model smollm2-135m-instruct --adapter runs/demo/adapter --prompt \"Why is the sky "
          "blue?\" --temperature 0.7")
      .example("kullback generate --model smollm2-135m-instruct --weights int8 --chat")
      .example("kullback generate --model smollm2-135m-instruct --prompts questions.jsonl --samples 4 --temperature 1");
  return command;
}

/// Prints text as it grows, holding back bytes of a character that is not complete yet, and what may be the beginning of
/// a text that ends the answer.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const std::vector<std::string>& stops) : tokenizer_(tokenizer), stops_(stops) {
    for (const std::string& stop : stops) held_ = std::max(held_, stop.empty() ? 0 : stop.size() - 1);
  }
  void add(int32_t id) {
    ids_.push_back(id);
    const std::string text = tokenizer_.decode(ids_, /*skip_special=*/true);
    if (text.ends_with("\xef\xbf\xbd") || text.size() < held_) return;
    size_t end = text.size() - held_;
    for (const std::string& stop : stops_) end = std::min(end, text.find(stop));
    while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    print(text, end);
  }
  void finish(const std::string& text) {
    print(text, text.size());
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  void print(const std::string& text, size_t end) {
    if (end <= printed_) return;
    std::fwrite(text.data() + printed_, 1, end - printed_, stdout);
    std::fflush(stdout);
    printed_ = end;
  }
  const Tokenizer& tokenizer_;
  const std::vector<std::string>& stops_;
  std::vector<int32_t> ids_;
  size_t printed_ = 0, held_ = 0;
};

GenerationOptions generation_options(const GenerateOptions& o, const Model& model) {
  GenerationOptions options{.sampling = o.filters,
                            .max_new_tokens = o.max_new_tokens,
                            .stop_ids = model.generation.stop_ids,
                            .seed = static_cast<uint64_t>(o.seed),
                            .streams = {}};
  options.sampling.temperature = o.temperature;
  options.stop_texts = o.stop;
  options.tokenizer = &model.text();
  options.logps = o.logps;
  options.top_logps = o.top_logps;
  options.slots = o.slots;
  return options;
}

DataOptions::TextFormat format_of(const GenerateOptions& o) {
  return o.raw ? DataOptions::TextFormat::raw : DataOptions::TextFormat::chat;
}

std::vector<Message> messages_of(const GenerateOptions& o, const std::string& prompt) {
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", prompt});
  return messages;
}

/// Answers one conversation, printing as it goes.
Generated answer(const Model& model, const std::vector<Message>& messages, const GenerateOptions& o, uint64_t stream) {
  GenerationOptions options = generation_options(o, model);
  options.streams = {stream};
  Printer printer(model.text(), o.stop);
  const Generated result =
      generate(model.transformer, {encode_prompt(model, messages, format_of(o))}, options, [&](size_t, int32_t id) {
        printer.add(id);
        return true;
      })[0];
  printer.finish(result.text);
  return result;
}

Json to_json(const Generated& one, size_t row, int64_t sample, const GenerateOptions& o) {
  Json json{{"row", row}, {"sample", sample}, {"completion", one.text}, {"stopped", one.stopped}};
  if (o.logps || o.top_logps > 0) json["ids"] = one.ids;
  if (o.logps) json["logps"] = one.logps, json["sampler_logps"] = one.sampler_logps;
  if (o.top_logps == 0) return json;
  const size_t count = one.top_ids.size() / std::max<size_t>(1, one.ids.size());
  Json steps = Json::array();
  for (size_t t = 0; t < one.ids.size(); ++t) {
    Json step = Json::array();
    for (size_t k = t * count; k < (t + 1) * count; ++k) step.push_back({one.top_ids[k], one.top_logps[k]});
    steps.push_back(std::move(step));
  }
  json["top_logps"] = std::move(steps);
  return json;
}

/// Answers the prompts `samples` times each and prints a JSON object an answer.
void answer_as_json(const Model& model, const GenerateOptions& o, const std::vector<std::vector<int32_t>>& prompts) {
  const auto samples = static_cast<size_t>(o.samples);
  std::vector<std::vector<int32_t>> repeated;
  for (const auto& prompt : prompts) repeated.insert(repeated.end(), samples, prompt);
  const std::vector<Generated> all = generate(model.transformer, repeated, generation_options(o, model));
  for (size_t i = 0; i < all.size(); ++i) {
    fmt::print("{}\n", to_json(all[i], i / samples, static_cast<int64_t>(i % samples), o)
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

/// The likeliest answer that beams find, and with --samples the next ones.
void answer_by_beams(const Model& model, const GenerateOptions& o) {
  const BeamSearchOptions options{
      .num_beams = o.num_beams,
      .max_new_tokens = o.max_new_tokens,
      .length_penalty = o.length_penalty,
      .early_stopping = o.early_stopping,
      .num_return = o.samples,
      .end_token = model.generation.stop_ids.empty() ? -1 : model.generation.stop_ids.front()};
  for (const Beam& beam :
       beam_search(model.transformer, encode_prompt(model, messages_of(o, o.prompt), format_of(o)), options)) {
    fmt::print("{}\n", model.text().decode_text(beam.tokens, /*skip_special=*/true));
  }
}

/// Each line of standard input is a turn; an empty one is passed over.
void chat(const Model& model, const GenerateOptions& o) {
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  const bool terminal = isatty(STDIN_FILENO) != 0;
  uint64_t turn = 0;
  for (std::string line; (terminal ? fmt::print("> ") : void()), std::fflush(stdout), std::getline(std::cin, line);) {
    if (line.empty()) continue;
    messages.push_back({"user", line});
    messages.push_back({"assistant", answer(model, messages, o, turn++).text});
  }
  if (terminal) fmt::print("\n");
}

std::vector<Message> messages_of_row(const Json& row, const GenerateOptions& o, const std::string& where) {
  if (!row.contains("prompt")) fail("{}: no column \"prompt\"", where);
  const Json& prompt = row["prompt"];
  if (prompt.is_string()) return messages_of(o, prompt.get<std::string>());
  std::vector<Message> messages;
  if (!prompt.is_array() || prompt.empty()) fail("{}: \"prompt\" is neither a text nor a list of messages", where);
  for (const Json& one : prompt) {
    if (!one.is_object() || !one.value("role", Json()).is_string() || !one.value("content", Json()).is_string())
      fail("{}: a message of \"prompt\" lacks \"role\" or \"content\"", where);
    messages.push_back({one["role"].get<std::string>(), one["content"].get<std::string>()});
  }
  return messages;
}

void answer_file(const Model& model, const GenerateOptions& o) {
  std::vector<std::vector<int32_t>> prompts;
  read_jsonl(o.prompts, [&](int64_t line, const Json& row) {
    prompts.push_back(
        encode_prompt(model, messages_of_row(row, o, fmt::format("{}:{}", o.prompts, line)), format_of(o)));
  });
  if (prompts.empty()) fail("{}: there is no prompt in it", o.prompts);
  answer_as_json(model, o, prompts);
}

int run(const std::vector<std::string>& arguments) {
  GenerateOptions o;
  if (!describe(o).parse(arguments)) return exit_success;
  if (o.model.empty()) fail("kullback generate: --model is missing");
  const int ways = !o.prompt.empty() + !o.prompts.empty() + o.chat;
  if (ways == 0) fail("kullback generate: --prompt is missing (or --prompts, or --chat)");
  if (ways > 1) fail("kullback generate: --prompt, --prompts and --chat exclude one another");
  const bool as_json = !o.prompts.empty() || o.json;
  if ((o.logps || o.top_logps > 0) && !as_json)
    fail("kullback generate: --logps and --top-logps go with --prompts, or --prompt and --json");
  if (o.json && (o.chat || o.num_beams > 1)) fail("option --json: goes with neither --chat nor --num-beams");
  if (o.num_beams > 1 && (o.prompt.empty() || o.temperature > 0 || !o.stop.empty()))
    fail("kullback generate: --num-beams goes with --prompt, and with neither --temperature nor --stop");
  if (o.num_beams > 1 && o.samples > o.num_beams) fail("option --samples: {} of {} beams", o.samples, o.num_beams);
  if (o.chat && o.raw) fail("kullback generate: --chat needs the chat template that --raw leaves out");
  if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  for (const std::string& stop : o.stop) {
    if (stop.empty()) fail("option --stop: an empty text would end every answer at once");
  }
  Model model = load_model(o.model, at::kFloat, o.weights);
  if (!o.chat_template.empty()) set_chat_template(model, ChatTemplate::named(o.chat_template).jinja());
  if (!o.adapter.empty()) load_adapter(model.transformer, o.adapter);

  if (o.chat) {
    chat(model, o);
  } else if (o.num_beams > 1) {
    answer_by_beams(model, o);
  } else if (!o.prompts.empty()) {
    answer_file(model, o);
  } else if (o.json) {
    answer_as_json(model, o, {encode_prompt(model, messages_of(o, o.prompt), format_of(o))});
  } else {
    for (int64_t sample = 0; sample < o.samples; ++sample)
      answer(model, messages_of(o, o.prompt), o, static_cast<uint64_t>(sample));
  }
  return exit_success;
}

const RegisteredProgram program{{"generate", "answer a prompt, many prompts, or in a conversation",
                                 [] {
                                   static GenerateOptions o;
                                   return describe(o);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
