#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/text/golden.h"
#include "kullback/text/tokenizer.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string folder(const std::string& name) { return std::string(KULLBACK_FIXTURES) + "/tokenizers/" + name; }

Tokenizer load(const std::string& name) {
  return Tokenizer::from_json(contents(folder(name) + "/tokenizer.json"),
                              contents(folder(name) + "/tokenizer_config.json"), name);
}

/// The tokenizers library's own results (see the fixture's source), for every kind of tokenizer.
class TokenizerJson : public testing::TestWithParam<const char*> {
 protected:
  Json goldens_ = Json::parse(contents(folder(GetParam()) + "/goldens.json"));
};

void expect_goldens(const Tokenizer& tokenizer, const Json& goldens) {
  EXPECT_GT(goldens["cases"].size(), 250u);
  for (const Json& one : goldens["cases"]) {
    EXPECT_EQ(golden_difference(tokenizer, one), "") << one["text"].dump().substr(0, 200);
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), one["ids"].get<Ids>());
  }
  for (const Json& one : goldens["pairs"]) EXPECT_EQ(golden_pair_difference(tokenizer, one), "") << one["text"];
  for (char32_t c = 0; c < 256; ++c) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(tokenizer.encode(text), goldens["latin1_ids"][c].get<Ids>()) << static_cast<unsigned>(c);
  }
}

TEST_P(TokenizerJson, GivesWhatTheLibraryGives) { expect_goldens(load(GetParam()), goldens_); }

TEST_P(TokenizerJson, SaysTheSameAfterWritingAndReading) {
  const Tokenizer first = load(GetParam());
  const Json written = first.to_json();
  const Tokenizer second = Tokenizer::from_json(written.dump(), first.config_json("x").dump(), "again");
  EXPECT_EQ(second.to_json(), written);
  EXPECT_EQ(second.eos(), first.eos());
  expect_goldens(second, goldens_);
}

TEST_P(TokenizerJson, EncodesInParallelAsAlone) {
  const Tokenizer tokenizer = load(GetParam());
  std::vector<std::string> texts;
  for (const Json& one : goldens_["cases"]) texts.push_back(one["text"].get<std::string>());
  const auto all = tokenizer.encode_all(texts, true, 3);
  ASSERT_EQ(all.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(all[i], tokenizer.encode(texts[i]));
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerJson,
                         testing::Values("gpt2", "llama3", "qwen2", "smollm2", "llama2", "gemma", "unigram", "clip",
                                         "bert", "roberta", "unigram-precompiled"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Goldens, SayWhatDiffers) {
  const Tokenizer tokenizer = load("llama2");
  const Json one = Json::parse(contents(folder("llama2") + "/goldens.json"))["cases"][3];
  const auto with = [&](const char* key, const Json& value) {
    Json changed = one;
    changed[Json::json_pointer(key)] = value;
    return golden_difference(tokenizer, changed);
  };
  EXPECT_EQ(with("/ids/1", 0), "ids[1] is " + one["ids"][1].dump() + ", expected 0");
  EXPECT_EQ(with("/ids", Json::array({one["ids"][0]})), "ids[1] is " + one["ids"][1].dump() + ", expected the end");
  EXPECT_THAT(with("/offsets/0/0", 7), HasSubstr("offsets[0] is [0,"));
  EXPECT_THAT(with("/ids_with_special/0", 7), HasSubstr("ids_with_special[0] is 1, expected 7"));
  EXPECT_THAT(with("/decoded", "x"), HasSubstr("decoded is \"<s>"));
  EXPECT_THAT(with("/decoded_skip_special", "x"), HasSubstr("decoded_skip_special is"));
  EXPECT_THAT(golden_difference(tokenizer, {{"text", " a"}, {"ids", tokenizer.encode(" a")}}), "");
}

// SentencePiece-style BPE has a token for every byte, so these come back exactly as well.
TEST(TokenizerJsonBytes, ComeBackAsTheyWere) {
  for (const char* name : {"gpt2", "llama3", "gemma", "llama2"}) {
    const Tokenizer tokenizer = load(name);
    for (const std::string text : {"a\xff\xfe b", "\xc3", "x \xf0\x9f\x98", "\x80\x80"}) {
      const std::string back = tokenizer.decode(tokenizer.encode(text));
      EXPECT_EQ(back, text) << name;
    }
  }
}

std::string refusal(const std::string& json) {
  try {
    Tokenizer::from_json(json, "", "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json small() {
  return Json::parse(
      R"({"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":null,"pre_tokenizer":null,"decoder":null,
    "post_processor":null,"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
}

TEST(TokenizerJsonLies, AreNamed) {
  EXPECT_EQ(refusal(small().dump()), "");
  Json json = small();
  json["model"]["merges"] = Json::array({"a c"});
  EXPECT_THAT(refusal(json.dump()),
              HasSubstr("t.json: merge 0 (\"a\" and \"c\") names \"c\", which is not in the vocabulary"));
  json = small();
  json["model"]["merges"] = Json::array({"b a"});
  EXPECT_THAT(refusal(json.dump()), HasSubstr("names \"ba\""));
  json = small();
  json["model"]["vocab"]["b"] = 0;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("t.json: model.vocab: tokens \"a\" and \"b\" have the same id 0"));
  json = small();
  json["model"]["vocab"]["b"] = 1000000000;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("has the id 1000000000, far beyond the 3 tokens"));
  json["model"]["vocab"]["b"] = -1;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("model.vocab[\"b\"] is not a whole number"));
  json = small();
  json["added_tokens"].push_back({{"id", 3}, {"content", "x"}});
  EXPECT_THAT(refusal(json.dump()), HasSubstr("added_tokens[1]: the id 3 appears twice"));
  json["added_tokens"][1]["id"] = 2000000000;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("far beyond the vocabulary"));
  json = small();
  json["normalizer"] = {{"type", "Rot13"}};
  EXPECT_THAT(refusal(json.dump()), HasSubstr("t.json: normalizer is of type \"Rot13\", which is not known"));
  json["normalizer"] = Json::parse(
      R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"Regex":"(a"},"content":""}]})");
  EXPECT_THAT(refusal(json.dump()),
              HasSubstr("t.json: normalizer.normalizers[1].pattern: the regular expression \"(a\" is not well-formed"));
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "////"}};
  EXPECT_THAT(refusal(json.dump()), HasSubstr("precompiled_charsmap"));
  json = small();
  json["model"]["unk_token"] = "?";
  EXPECT_THAT(refusal(json.dump()), HasSubstr("the unknown token \"?\" is not in the vocabulary"));
  json["model"] = nullptr;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("there is no model"));
  EXPECT_THAT(refusal("[]"), HasSubstr("t.json: not a JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("t.json: not JSON"));
  json = small();
  json["post_processor"] = Json::parse(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>","type_id":0}}],"pair":[],"special_tokens":{}})");
  EXPECT_THAT(refusal(json.dump()), HasSubstr("post_processor.special_tokens has no <x>"));
  std::string nested = "null";
  for (int i = 0; i < 40; ++i) nested = "{\"type\":\"Sequence\",\"normalizers\":[" + nested + "]}";
  json = small();
  json["normalizer"] = Json::parse(nested);
  EXPECT_THAT(refusal(json.dump()), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace kullback
