// Every family written as GGUF and read back; what GGUF has no word for is said.
#include "kullback/lm/save_gguf.h"

#include <filesystem>

#include <unistd.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/describe.h"
#include "kullback/lm/naive_test.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

using testing::HasSubstr;

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("kullback_" + name + "_" + std::to_string(getpid()) + ".gguf");
}

Model fixture(const std::string& name) { return load_model(KULLBACK_FIXTURES "/architectures/" + name); }

at::Tensor logits(const Model& model) {
  const at::NoGradGuard no_grad;
  return model.transformer.logits(model.transformer.hidden(ragged({test::random_ids(96, 20, 3)})));
}

// How far the logits move when a model goes through a file.
double moved(const Model& model, GgmlType type) {
  const std::filesystem::path path = temporary("moved");
  save_gguf(model, path, type);
  const Model back = load_model(path.string());
  std::filesystem::remove(path);
  if (model.config().rope.scaling != Rope::Scaling::longrope) {  // its factors become float32
    EXPECT_EQ(config_to_json(back.config()).dump(), config_to_json(model.config()).dump());
  }
  return (logits(back) - logits(model)).abs().max().item<double>();
}

class GgufFamily : public testing::TestWithParam<const char*> {};

TEST_P(GgufFamily, ComesBackAsItWas) {
  Model model = fixture(GetParam());
  Config& config = model.transformer.config;
  // What GGUF's readers take for granted, where the fixtures choose otherwise.
  if (config.query_scale > 0) config.query_scale = static_cast<double>(config.head_size);
  if (config.model_type == "gemma3_text") {
    for (int64_t i = 0; i < config.layers; ++i) config.sliding[static_cast<size_t>(i)] = (i + 1) % 6 != 0;
  }
  if (config.model_type == "smollm3") config.unrotated = {false, false, false, true};
  if (config.model_type != "phi3" && !config.model_type.starts_with("gemma")) config.sliding.clear(), config.window = 0;
  if (config.model_type == "mistral") config.model_type = "llama";  // the name of its layout
  if (config.rope.scaling == Rope::Scaling::llama3) {
    config.rope.factor = 8;
    config.rope.low_frequency = 1;
    config.rope.high_frequency = 4;
    config.rope.original_positions = 8192;
  }
  EXPECT_LT(moved(model, GgmlType::f32), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamily,
                         testing::Values("gemma", "gemma2", "gemma3", "gpt-neox", "gpt-neox-sequential", "gpt2",
                                         "llama", "llama-bias", "llama-gqa", "llama-rope-linear", "llama-rope-llama3",
                                         "llama-rope-yarn", "llama-tied", "mistral", "olmo2", "phi3", "phi3-longrope",
                                         "qwen2", "qwen3", "smollm3"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// GGUF knows nothing of added tokens that take the spaces beside them, stand as whole words or are looked for in the
// normalised text, nor of pieces that are in a vocabulary and that no merge makes (runs of spaces in Gemma's fixture).
bool beyond_gguf(const Tokenizer& tokenizer, const std::string& text) {
  for (const AddedToken& token : tokenizer.parts().added) {
    const bool unusual = token.lstrip || token.rstrip || token.single_word || token.normalized;
    if (unusual && text.find(token.content) != std::string::npos) return true;
    if (token.content == "\u2581\u2581" &&
        (text.find("  ") != std::string::npos || text.find("\u2581") != std::string::npos))
      return true;
  }
  return false;
}

// Byte-level BPE keeps its merges and the name of its splitting, SentencePiece's BPE becomes scores.
TEST(SaveGguf, TokenizersComeBackWithTheSameIds) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "smollm2", "llama2", "gemma"}) {
    const std::string folder = std::string(KULLBACK_FIXTURES "/tokenizers/") + name;
    Model model;
    model.name = name;
    model.tokenizer = read_tokenizer(folder);
    Config config = test::tiny_config();
    config.vocabulary_size = model.tokenizer->vocabulary_size() + 3;
    model.transformer = random_transformer(config, 1);
    const std::filesystem::path path = temporary("tokenizer");
    save_gguf(model, path, GgmlType::f32);
    const Model back = load_model(path.string());
    std::filesystem::remove(path);
    size_t different = 0, all = 0;
    const Json golden = read_json(folder + "/goldens.json");
    for (const Json& one : golden.at("cases")) {
      const auto text = one.at("text").get<std::string>();
      if (beyond_gguf(*model.tokenizer, text)) continue;
      ++all;
      different += back.text().encode(text) != model.text().encode(text);
    }
    EXPECT_EQ(different, 0u) << name << ", of " << all;
    EXPECT_GT(all, 200u) << name;
    EXPECT_EQ(back.text().add_special({5}), model.text().add_special({5})) << name;
  }
}

TEST(SaveGguf, FewerBitsMoveTheLogitsMore) {
  const Model model = fixture("llama");
  double before = 0;
  for (const GgmlType type : {GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_1}) {
    const double by = moved(model, type);
    EXPECT_GT(by, before) << layout_of(type).name;
    before = by;
  }
  EXPECT_GT(moved(model, GgmlType::q4_0), moved(model, GgmlType::q8_0));
}

TEST(SaveGguf, SaysWhatGgufCannotSay) {
  const auto message = [](const char* name) {
    try {
      save_gguf(fixture(name), temporary("refused"), GgmlType::f32);
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(temporary("refused")));
      return std::string(error.what());
    }
    return std::string("no Error");
  };
  EXPECT_THAT(message("llama-rope-dynamic"), HasSubstr("no word for dynamic rotary scaling"));
  EXPECT_THAT(message("llama-rope-yarn-options"), HasSubstr("yarn with beta_fast"));
  EXPECT_THAT(message("gemma2"), HasSubstr("query_pre_attn_scalar"));
  EXPECT_THAT(message("gemma3"), HasSubstr("pattern of sliding layers"));
  EXPECT_THAT(message("smollm3"), HasSubstr("layers without positions"));
  EXPECT_THROW(save_gguf(fixture("llama"), temporary("refused"), GgmlType::q6_k), Error);
}

TEST(Describe, SaysWhatIsStoredWithoutReadingIt) {
  const ModelDescription folder = describe_model(KULLBACK_FIXTURES "/architectures/llama-bf16");
  const Model whole = fixture("llama-bf16");
  EXPECT_EQ(folder.parameters, whole.transformer.parameter_count());
  ASSERT_EQ(folder.types.size(), 1u);
  EXPECT_EQ(folder.types[0].numbers, folder.parameters);
  EXPECT_EQ(folder.types[0].bytes, 2 * folder.parameters);

  const std::filesystem::path path = temporary("described");
  save_gguf(whole, path, GgmlType::q8_0);
  const ModelDescription file = describe_model(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(file.parameters, folder.parameters);
  EXPECT_EQ(file.types.size(), 3u);  // vectors stay F32, and rows that are no whole blocks become F16
  EXPECT_EQ(file.format, "GGUF version 3");
}

}  // namespace
}  // namespace kullback
