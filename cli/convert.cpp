#include <filesystem>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"
#include "kullback/lm/save.h"
#include "kullback/lm/save_gguf.h"

namespace kullback {
namespace {

struct ConvertOptions {
  std::string type = "auto";
  std::string adapter, chat_template;
  bool json = false;
};

const Options<ConvertOptions>& convert_options() {
  using O = ConvertOptions;
  static const auto options =
      Options<O>()
          .option("type", &O::type, std::vector<std::string>{"auto", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"},
                  "how numbers are stored; auto: f32 in a folder, f16 in a GGUF file; the q types in GGUF files only")
          .option("adapter", &O::adapter, "a PEFT adapter, which is merged into the weights")
          .option("chat-template", &O::chat_template, "write this template instead of the model's own")
          .option("json", &O::json, "one JSON object of what was written");
  return options;
}

Command describe(ConvertOptions& o, std::vector<std::string>& paths) {
  Command command(
      "convert", "write a model in another format",
      "Reads a GGUF file or a Hugging Face folder and writes the other, or the same in another type. A name "
      "that ends in\n.gguf becomes a GGUF file, any other a Hugging Face folder. Nothing that is there is "
      "written over.");
  command.arguments("IN OUT", &paths, "what is read, and what is written", 2, 2)
      .options("Options", convert_options(), &o)
      .example("kullback convert smollm2-135m-instruct smollm2-folder --type bf16")
      .example("kullback convert smollm2-folder smollm2.gguf --type q8_0 --adapter runs/demo/adapter");
  return command;
}

at::ScalarType scalar_type(const std::string& type) {
  if (type == "auto" || type == "f32") return at::kFloat;
  if (type == "f16") return at::kHalf;
  if (type == "bf16") return at::kBFloat16;
  fail("option --type: {} is for GGUF files; a folder takes f32, f16 or bf16", type);
}

int run(const std::vector<std::string>& arguments) {
  ConvertOptions o;
  std::vector<std::string> paths;
  if (!describe(o, paths).parse(arguments)) return exit_success;
  const std::string& from = paths[0];
  const std::string& to = paths[1];
  const bool gguf = to.ends_with(".gguf");
  if (std::filesystem::exists(to) && (gguf || !std::filesystem::is_directory(to)))
    fail("{}: there is something already; it is not written over", to);
  const GgmlType ggml = gguf ? *ggml_type(std::string_view(o.type == "auto" ? "f16" : o.type)) : GgmlType::f32;
  const at::ScalarType scalar = gguf ? at::kFloat : scalar_type(o.type);

  Model model = load_model(from);
  if (!o.adapter.empty()) {
    load_adapter(model.transformer, o.adapter);
    merge_lora(model.transformer);
  }
  if (!o.chat_template.empty()) set_chat_template(model, ChatTemplate::named(o.chat_template).jinja());
  if (gguf) {
    save_gguf(model, to, ggml);
  } else {
    if (scalar != at::kFloat) model.transformer = model.transformer.clone(scalar);
    save_model(model, to);
  }
  if (o.json) {
    fmt::print("{}\n", Json{{"from", from},
                            {"to", to},
                            {"type", o.type != "auto" ? o.type
                                     : gguf           ? "f16"
                                                      : "f32"}}
                           .dump());
  } else {
    fmt::print("{}: written\n", to);
  }
  return exit_success;
}

const RegisteredProgram program{{"convert", "write a model in another format",
                                 [] {
                                   static ConvertOptions o;
                                   static std::vector<std::string> paths;
                                   return describe(o, paths);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
