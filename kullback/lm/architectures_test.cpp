// Tiny checkpoints as transformers wrote them, and what it makes of them (fixtures/architectures): logits, loss, the
// norm of each gradient, greedy tokens, padded batches, shards, 16-bit files, rotary scalings and an adapter.
#include <fstream>

#include <gtest/gtest.h>

#include "kullback/base/json.h"
#include "kullback/lm/golden.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"

namespace kullback {
namespace {

std::string folder(const std::string& name) { return KULLBACK_FIXTURES "/architectures/" + name; }

Model model_of(const std::string& name, const Json& golden) {
  if (!golden.contains("base")) return load_model(folder(name));
  Model model = load_model(folder(name) + "/" + golden["base"].get<std::string>());
  load_adapter(model.transformer, folder(name));
  return model;
}

class Architecture : public testing::TestWithParam<const char*> {};

TEST_P(Architecture, IsWhatTransformersMakesOfIt) {
  std::ifstream file(folder(GetParam()) + "/golden.json");
  const Json golden = Json::parse(file);
  Model model = model_of(GetParam(), golden);
  for (const GoldenFigure& figure : golden_figures(golden, model, GetParam())) {
    EXPECT_TRUE(figure.passed) << figure.name << ": " << figure.largest_difference << " at " << figure.at;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Architecture,
                         testing::Values("gemma", "gemma2", "gemma3", "gemma3-nested", "gpt-neox",
                                         "gpt-neox-sequential", "gpt2", "gpt2-unprefixed", "llama", "llama-bf16",
                                         "llama-bias", "llama-defaults", "llama-f16", "llama-gqa", "llama-lora",
                                         "llama-rope-dynamic", "llama-rope-linear", "llama-rope-llama3",
                                         "llama-rope-yarn", "llama-rope-yarn-options", "llama-sharded", "llama-tied",
                                         "mistral", "olmo2", "phi3", "phi3-longrope", "qwen2", "qwen2-sliding", "qwen3",
                                         "smollm3"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kullback
