#include "kullback/train/data.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string file_of(const std::string& text) {
  static int number = 0;
  const auto path = std::filesystem::path(::testing::TempDir()) / fmt::format("pairs-{}.jsonl", ++number);
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

const std::string good = R"({"prompt": "Hi", "chosen": "Hello.", "rejected": "Go away."})"
                         "\n";

PreferenceData load(const std::string& text, DataOptions options = {}) {
  return load_preferences(file_of(text), test::tiny_model(), options);
}

std::string error_of(const std::string& text, DataOptions options = {}) {
  try {
    load(text, std::move(options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string decoded(const Model& model, const Sequence& s, bool response) {
  const auto begin = s.ids.begin() + (response ? s.response_begin : 0),
             end = response ? s.ids.end() : s.ids.begin() + s.response_begin;
  return model.text().decode(std::vector<int32_t>(begin, end));
}

TEST(Preferences, TextsBecomeMessagesAndOnlyTheResponseIsLabelled) {
  const Model model = test::tiny_model();
  const PreferenceData data = load(good);
  ASSERT_EQ(data.pairs.size(), 1u);
  EXPECT_THAT(decoded(model, data.pairs[0].chosen, false),
              AllOf(HasSubstr("<|im_start|>user\nHi<|im_end|>"), HasSubstr("<|im_start|>assistant\n")));
  EXPECT_EQ(decoded(model, data.pairs[0].chosen, true),
            "Hello.<|im_end|>");  // the end of the turn is learnt, what follows it is not
  EXPECT_EQ(decoded(model, data.pairs[0].rejected, true), "Go away.<|im_end|>");
}

TEST(Preferences, ThePromptsIdsAreThoseOfUse) {
  const Model model = test::tiny_model();
  const PreferenceData data = load(good);
  const std::vector<int32_t> in_use = encode_prompt(model, data.pairs[0].prompt, DataOptions::TextFormat::chat);
  EXPECT_EQ(std::vector<int32_t>(data.pairs[0].chosen.ids.begin(),
                                 data.pairs[0].chosen.ids.begin() + data.pairs[0].chosen.response_begin),
            in_use);
}

TEST(Preferences, MessagesTextsAndSharedConversationsAreTheSame) {
  const auto ids = [](const std::string& text) { return load(text).pairs.at(0).chosen.ids; };
  const auto expected = ids(good);
  EXPECT_EQ(
      ids(R"({"prompt":[{"role":"user","content":"Hi"}],"chosen":[{"role":"assistant","content":"Hello."}],"rejected":[{"role":"assistant","content":"No."}]})"),
      expected);
  EXPECT_EQ(
      ids(R"({"chosen":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}],"rejected":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No."}]})"),
      expected);
}

TEST(Preferences, BlankLinesAndWindowsLineEndsAreNoRows) {
  EXPECT_EQ(load("\xef\xbb\xbf" + good + "\r\n\n" + good).pairs.at(1).line, 4);
}

TEST(Preferences, LongResponsesAreCutAndCounted) {
  const PreferenceData data =
      load(good + R"({"prompt":"Hi","chosen":")" + std::string(300, 'a') + R"(","rejected":"b"})", {.max_length = 120});
  EXPECT_EQ(data.counts.cut, 1);
  EXPECT_EQ(data.counts.used, 2);
  EXPECT_EQ(data.pairs[1].chosen.ids.size(), 120u);
}

TEST(Preferences, APromptThatFillsTheLengthStopsOrIsDropped) {
  const std::string row = R"({"prompt":")" + std::string(300, 'a') +
                          R"(","chosen":"b","rejected":"c"})"
                          "\n";
  EXPECT_THAT(error_of(good + row, {.max_length = 120}),
              AllOf(HasSubstr("line 2"), HasSubstr("--max-length"), HasSubstr("--drop-overlong")));
  const PreferenceData data = load(good + row, {.max_length = 120, .drop_overlong = true});
  EXPECT_EQ(data.counts.dropped, 1);
  EXPECT_EQ(data.pairs.size(), 1u);
}

TEST(Preferences, BadRowsNameFileLineAndColumn) {
  EXPECT_THAT(error_of(good + "{\"prompt\": \"x\", \"chosen\": \"y\"}"),
              AllOf(HasSubstr("line 2"), HasSubstr("\"rejected\"")));
  EXPECT_THAT(error_of(good + "{\"prompt\": "), AllOf(HasSubstr("line 2"), HasSubstr("JSON")));
  EXPECT_THAT(error_of(R"({"prompt":"x","chosen":"","rejected":"z"})"),
              AllOf(HasSubstr("line 1"), HasSubstr("\"chosen\" is empty")));
  EXPECT_THAT(error_of(R"({"prompt":"x","chosen":7,"rejected":"z"})"), HasSubstr("neither a text nor a list"));
  EXPECT_THAT(error_of(R"({"prompt":"x","chosen":[{"role":"assistant"}],"rejected":"z"})"),
              HasSubstr("role and content"));
  EXPECT_THAT(error_of(R"({"chosen":"y","rejected":"z"})"), HasSubstr("prompt"));
  EXPECT_THAT(error_of(R"({"prompt":"x","chosen":"y","rejected":"z","weight":-1})"), HasSubstr("\"weight\""));
  EXPECT_THAT(error_of(""), HasSubstr("no row"));
}

TEST(Preferences, HeldOutRowsAreDrawnBySeedAndTakenAway) {
  std::string rows;
  for (int i = 0; i < 20; ++i) rows += good;
  PreferenceData first = load(rows), second = load(rows), third = load(rows);
  const auto lines = [](const PreferenceData& d) {
    std::vector<int64_t> all;
    for (const auto& pair : d.pairs) all.push_back(pair.line);
    return all;
  };
  const auto a = lines(hold_out(first, 0.25, 1)), b = lines(hold_out(second, 0.25, 1)),
             c = lines(hold_out(third, 0.25, 2));
  EXPECT_EQ(a.size(), 5u);
  EXPECT_EQ(first.pairs.size(), 15u);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  for (const int64_t line : a) EXPECT_THAT(lines(first), ::testing::Not(::testing::Contains(line)));
}

TEST(Responses, PrivateTextsMarkTheTokensThatTheyAreMadeOf) {
  const Model model = test::tiny_model();  // a token a byte
  const SupervisedData data = load_supervised(file_of(R"({"prompt": "A", "completion": "none"}
{"prompt": "B", "completion": "call 555 or 55", "private": ["55", "or"]}
)"),
                                              model, {});
  ASSERT_EQ(data.examples.size(), 2U);
  const std::vector<double>& marks = data.examples[1].numbers.at("privacy");
  std::string marked;
  for (size_t t = 0; t < marks.size(); ++t) marked += marks[t] == 1 ? 'x' : '-';
  EXPECT_EQ(marked.substr(0, 14), "-----xxx-xx-xx");  // overlapping places of "55" all count
  EXPECT_EQ(data.examples[0].numbers.at("privacy"),
            std::vector<double>(static_cast<size_t>(data.examples[0].sequence.counted()), 0.0));
  try {
    load_supervised(file_of(R"({"prompt": "B", "completion": "call", "private": ["555"]})"), model, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("line 1"), HasSubstr("555")));
  }
}

TEST(Prompts, AreThoseOfAnyRows) {
  const Model model = test::tiny_model();
  const SupervisedData pairs = load_prompts(file_of(good), model, {}),
                       rows = load_prompts(file_of(R"({"prompt": "Hi", "completion": "Hello."})"), model, {});
  ASSERT_EQ(pairs.examples.size(), 1U);
  EXPECT_EQ(pairs.examples[0].sequence.ids, rows.examples[0].sequence.ids);
  EXPECT_EQ(pairs.examples[0].text, "Hello.");
}

}  // namespace
}  // namespace kullback
