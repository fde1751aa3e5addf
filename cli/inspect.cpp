#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/lm/describe.h"

namespace kullback {
namespace {

struct InspectOptions {
  bool json = false;
};

const Options<InspectOptions>& inspect_options() {
  static const auto options =
      Options<InspectOptions>().option("json", &InspectOptions::json, "one JSON object, config.json's words in it");
  return options;
}

Command describe(InspectOptions& o, std::vector<std::string>& models) {
  Command command(
      "inspect", "say what a model is",
      "Architecture, sizes, types, tokenizer, chat template and the memory that the model needs. Its weights "
      "are not read.");
  command.arguments("MODEL", &models, "a name known to `kullback pull`, a GGUF file or a Hugging Face folder", 1)
      .options("Options", inspect_options(), &o)
      .example("kullback inspect smollm2-135m-instruct");
  return command;
}

std::string tokenizer_kind(const Tokenizer& tokenizer) {
  const WordModel& model = tokenizer.parts().model;
  if (const auto* bpe = std::get_if<BpeModel>(&model))
    return bpe->byte_level ? "byte-level BPE" : bpe->byte_fallback ? "BPE with byte fallback" : "BPE";
  return std::holds_alternative<UnigramModel>(model) ? "Unigram" : "WordPiece";
}

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Adam's two moments and the gradient, each in float32 beside the weights.
int64_t training_bytes(const ModelDescription& d) { return 4 * d.float32_bytes; }

Json to_json(const ModelDescription& d) {
  Json json{{"model", d.model.name},
            {"format", d.format},
            {"config", config_to_json(d.model.config())},
            {"parameters", d.parameters},
            {"types", Json::array()}};
  for (const StoredType& type : d.types) {
    json["types"].push_back(
        {{"type", type.name}, {"tensors", type.tensors}, {"numbers", type.numbers}, {"bytes", type.bytes}});
  }
  json["tokenizer"] = Json();
  if (d.model.tokenizer)
    json["tokenizer"] = {{"kind", tokenizer_kind(*d.model.tokenizer)},
                         {"vocabulary", d.model.tokenizer->vocabulary_size()}};
  json["chat_template"] = d.model.chat ? Json(d.model.chat->name()) : Json();
  json["stop_ids"] = d.model.generation.stop_ids;
  json["memory"] = {{"float32_weights", d.float32_bytes},
                    {"bfloat16_weights", d.bfloat16_bytes},
                    {"int8_weights", d.int8_bytes},
                    {"cache_a_token", d.cache_bytes_a_token},
                    {"training_all_weights", training_bytes(d)}};
  return json;
}

std::string special(const Tokenizer& tokenizer, const char* name, std::optional<int32_t> id) {
  return id ? fmt::format(", {} {} ({})", name, *id, tokenizer.token_bytes(*id)) : "";
}

void print(const ModelDescription& d) {
  const Config& c = d.model.config();
  const auto line = [](const char* what, const std::string& text) { fmt::print("{:<14}{}\n", what, text); };
  line("model", d.model.name);
  line("format", d.format);
  line("architecture",
       fmt::format("{}: {} layers, width {}, {} heads of {} ({} for keys and values), MLP {}", c.model_type, c.layers,
                   c.hidden_size, c.heads, c.head_size, c.key_value_heads, c.mlp_size));
  line("positions", fmt::format("{}{}{}", c.max_positions, c.learned_positions ? ", learnt" : ", rotary",
                                c.sliding.empty() ? "" : fmt::format(", sliding window {}", c.window)));
  line("parameters", fmt::format("{}{}", d.parameters, c.tied_head ? ", head tied to the embedding" : ""));
  for (const StoredType& type : d.types)
    line("stored", fmt::format("{} tensors in {}: {}", type.tensors, type.name, mebibytes(type.bytes)));
  if (d.model.tokenizer) {
    const Tokenizer& t = *d.model.tokenizer;
    line("tokenizer", fmt::format("{}, {} tokens{}{}{}", tokenizer_kind(t), t.vocabulary_size(),
                                  special(t, "bos", t.bos()), special(t, "eos", t.eos()), special(t, "pad", t.pad())));
  } else {
    line("tokenizer", "none");
  }
  line("template", d.model.chat ? d.model.chat->name() : d.model.jinja.empty() ? "none" : "of an unknown kind");
  line("memory",
       fmt::format("{} for float32 weights ({} as bfloat16, {} as int8), {} a thousand tokens of context, {} to train "
                   "all weights",
                   mebibytes(d.float32_bytes), mebibytes(d.bfloat16_bytes), mebibytes(d.int8_bytes),
                   mebibytes(1000 * d.cache_bytes_a_token), mebibytes(training_bytes(d))));
}

int run(const std::vector<std::string>& arguments) {
  InspectOptions o;
  std::vector<std::string> models;
  if (!describe(o, models).parse(arguments)) return exit_success;
  for (const std::string& name : models) {
    const ModelDescription description = describe_model(name);
    if (o.json) {
      fmt::print("{}\n", to_json(description).dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
      print(description);
    }
  }
  return exit_success;
}

const RegisteredProgram program{{"inspect", "say what a model is",
                                 [] {
                                   static InspectOptions o;
                                   static std::vector<std::string> models;
                                   return describe(o, models);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
