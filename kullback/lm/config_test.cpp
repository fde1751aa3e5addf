// config.json of every family: what it becomes comes back, and damaged ones get an Error and nothing else.
#include "kullback/lm/config.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/rotary.h"

namespace kullback {
namespace {

using testing::HasSubstr;

std::vector<Json> fixture_configs() {
  std::vector<Json> all;
  for (const auto& entry : std::filesystem::directory_iterator(KULLBACK_FIXTURES "/architectures")) {
    const auto path = entry.path() / "config.json";
    if (std::filesystem::exists(path)) all.push_back(read_json(path));
  }
  return all;
}

// What is said of a configuration, or nothing when it is read.
std::string message(const Json& json) {
  try {
    config_from_json(json, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json minimal() {
  return {{"model_type", "llama"},   {"vocab_size", 96},       {"hidden_size", 32},
          {"intermediate_size", 48}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

TEST(Config, OfEveryFamilyComesBackAsItWas) {
  const std::vector<Json> all = fixture_configs();
  ASSERT_GE(all.size(), 29u);
  for (const Json& json : all) {
    const Json written = config_to_json(config_from_json(json, "fixture"));
    EXPECT_EQ(config_to_json(config_from_json(written, "written")).dump(), written.dump());
  }
}

// Every key removed, emptied, of another type, negative, huge: an Error that begins with the file's name, or a
// configuration; nothing else is thrown.
TEST(Config, DamagedOnesAreRefusedOrRead) {
  const std::vector<Json> wrong = {nullptr,
                                   -1,
                                   0,
                                   7,
                                   1e300,
                                   int64_t{1} << 62,
                                   "text",
                                   true,
                                   Json::array(),
                                   Json::object(),
                                   {1, 2},
                                   {{"rope_type", "yarn"}},
                                   {{"type", "longrope"}, {"factor", 0}}};
  size_t refused = 0;
  for (const Json& json : fixture_configs()) {
    for (const auto& [key, value] : json.items()) {
      Json without = json;
      without.erase(key);
      std::vector<std::string> said = {message(without)};
      for (const Json& other : wrong) {
        Json changed = json;
        changed[key] = other;
        said.push_back(message(changed));
      }
      for (const std::string& text : said) {
        refused += !text.empty();
        if (!text.empty()) {
          EXPECT_THAT(text, testing::StartsWith("config.json: "));
          EXPECT_EQ(text.find('\n'), std::string::npos);
        }
      }
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Config, OfAModelThatSeesImagesIsItsLanguagePart) {
  Json text = minimal();
  text["model_type"] = "gemma3_text";
  text["num_key_value_heads"] = 2;
  const Json whole = {
      {"model_type", "gemma3"}, {"text_config", text}, {"eos_token_id", {1, 106}}, {"vision_config", Json::object()}};
  const Config config = config_from_json(whole, "config.json");
  EXPECT_EQ(config.model_type, "gemma3_text");
  EXPECT_EQ(config.eos, 1);
  EXPECT_EQ(config.head_size, 256);
  EXPECT_TRUE(config.tied_head);
}

TEST(Config, SaysWhatIsWrong) {
  const auto with = [](const char* key, const Json& value) {
    Json json = minimal();
    json[key] = value;
    return message(json);
  };
  EXPECT_EQ(message(minimal()), "");
  EXPECT_THAT(with("model_type", "mistrall"), HasSubstr("did you mean \"mistral\""));
  EXPECT_THAT(with("num_attention_heads", 0), HasSubstr("num_attention_heads is 0"));
  EXPECT_THAT(with("head_dim", 7), HasSubstr("head_dim is 7"));
  EXPECT_THAT(with("num_attention_heads", 1 << 24), HasSubstr("head_dim is 0"));
  EXPECT_THAT(with("rope_scaling", {{"type", "dynamic"}}), HasSubstr("no key 'factor'"));
  EXPECT_THAT(with("rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}),
              HasSubstr("has 1 numbers for 4 pairs"));
  EXPECT_THAT(with("partial_rotary_factor", 1.5), HasSubstr("partial_rotary_factor is 1.5"));
  EXPECT_THAT(with("rms_norm_eps", -1), HasSubstr("rms_norm_eps is -1"));
}

// NTK-aware scaling by its formula; below the original context nothing is changed.
TEST(Config, DynamicRotationsFollowTheContext) {
  const Rope rope{.theta = 500, .scaling = Rope::Scaling::dynamic, .factor = 2, .original_positions = 16};
  EXPECT_EQ(rope_frequencies(rope, 8, 16), rope_frequencies({.theta = 500}, 8));
  const double theta = 500 * std::pow(2.0 * 26 / 16 - 1, 8.0 / 6);
  const std::vector<double> expected = rope_frequencies({.theta = theta}, 8), ours = rope_frequencies(rope, 8, 26);
  for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(ours[j], expected[j], 1e-15);
}

}  // namespace
}  // namespace kullback
