// Rewards: what each gives, by hand, and what is said when one cannot be had.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <unistd.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/jsonl.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/save.h"
#include "kullback/rewards/reward.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double of(const std::string& name, const std::string& response, int64_t tokens = -1) {
  const PromptedResponse one{.prompt = {{"user", "Hi"}}, .response = response, .tokens = tokens};
  return reward(name)({&one, 1})[0];
}

std::string refused(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

std::vector<PromptedResponse> three() {
  return {{.prompt = {{"user", "Hi"}}, .response = "a"},
          {.prompt = {{"system", "Be kind."}, {"user", "Hi"}}, .response = "bb"},
          {.prompt = {}, .response = "c\n\"c"}};
}

TEST(Rewards, OfTheTextAlone) {
  EXPECT_EQ(of("length", "one two", 7), 7);
  EXPECT_EQ(of("length:words", "  one two\n three "), 3);
  EXPECT_EQ(of("length:words", ""), 0);
  EXPECT_EQ(of("length:characters", "naïve"), 5);
  EXPECT_EQ(of("regex:^Yes", "Yes, sure"), 1);
  EXPECT_EQ(of("regex:^Yes", "Oh, Yes"), 0);
  EXPECT_EQ(of("regex:a{2,3}:", "aa:"), 1);  // commas and colons are the expression's own
  EXPECT_EQ(of("regex-count:[0-9]+", "1, 22 and 333"), 3);
  EXPECT_EQ(of("keywords:please,thank you", "Thank  you? Thank you. Pleased."), 0.5);
  EXPECT_EQ(of("keywords:C++,naïve", "NAÏVE people like c++ too"), 1);
  EXPECT_EQ(of("repetition:2", "a b a b a b"), 2.0 / 5 - 1);  // ab, ba
  EXPECT_EQ(of("repetition", "a b"), 0);
  EXPECT_EQ(of("repetition:1", "a b c"), 0);
  std::string varied, same;
  for (int i = 0; i < 300; ++i) varied += static_cast<char>(33 + i * i * 31 % 89), same += 'x';
  EXPECT_LT(of("compression", same), 0.05);
  EXPECT_GT(of("compression", varied), 3 * of("compression", same));
  EXPECT_EQ(of("compression", ""), 0);
}

TEST(Rewards, KeywordsOfAFile) {
  const fs::path file = fs::path(::testing::TempDir()) / "keywords.txt";
  write_file(file, "red\r\n\ngreen apple\n");
  EXPECT_EQ(of("keywords:@" + file.string(), "A green apple."), 0.5);
  EXPECT_THAT(refused([] { reward("keywords:@nowhere.txt"); }), HasSubstr("nowhere.txt"));
  EXPECT_THAT(refused([] { reward("keywords: , "); }), HasSubstr("no word"));
}

TEST(Rewards, EachIsKnownByNameAndRefusesWhatItCannotTake) {
  for (const RewardInfo& info : known_rewards()) EXPECT_FALSE(info.summary.empty()) << info.name;
  EXPECT_EQ(reward("length").name(), "length:tokens");
  EXPECT_EQ(reward("length").unit(), "tokens");
  EXPECT_THAT(refused([] { reward("lenght"); }), HasSubstr("did you mean \"length\""));
  EXPECT_THAT(refused([] { reward("length:token"); }), HasSubstr("did you mean \"tokens\""));
  EXPECT_THAT(refused([] { of("length", "a"); }), HasSubstr("length:words"));
  EXPECT_THAT(refused([] { reward("regex"); }), HasSubstr("regex:EXPRESSION"));
  EXPECT_THAT(refused([] { reward("regex:(("); }), HasSubstr("(("));
  EXPECT_THAT(refused([] { reward("repetition:0"); }), HasSubstr("\"0\""));
  EXPECT_THAT(refused([] { reward("compression:9"); }), HasSubstr("no parameter"));
  EXPECT_THAT(refused([] { reward("model:nowhere"); }), HasSubstr("nowhere"));
}

TEST(Rewards, AProgramIsAskedALineAResponse) {
  // Answers with the length of the line that it was asked.
  const Reward lengths = reward("program:while IFS= read -r line; do echo \"{\\\"reward\\\": ${#line}}\"; done");
  EXPECT_EQ(lengths(three())[0], std::string(R"({"prompt":"Hi","response":"a"})").size());
  EXPECT_EQ(lengths(three())[1],
            std::string(
                R"({"prompt":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}],"response":"bb"})")
                .size());
  EXPECT_EQ(lengths(three())[2], std::string(R"({"prompt":"","response":"c\n\"c"})").size());
  // Far more than the pipes hold, both ways.
  const std::vector<PromptedResponse> many(3000, {.prompt = {}, .response = std::string(300, 'x')});
  EXPECT_THAT(lengths(many), ::testing::Each(lengths({&many[0], 1})[0]));
}

TEST(Rewards, AProgramThatFailsIsNamed) {
  const auto asked = [](const std::string& command) { return refused([&] { reward("program:" + command)(three()); }); };
  EXPECT_THAT(asked("no-such-program-of-ours 2>/dev/null"), HasSubstr("exit status 127 after 0 answers"));
  EXPECT_THAT(asked("echo '{\"reward\": 1}'; exit 3"), HasSubstr("exit status 3 after 1 answers"));
  EXPECT_THAT(asked("kill -9 $$"), HasSubstr("signal 9"));
  EXPECT_THAT(asked("echo good"), HasSubstr("{\"reward\": NUMBER} but: good"));
  EXPECT_THAT(asked("echo '{\"reward\": \"good\"}'"), HasSubstr("response 1"));
  EXPECT_THAT(asked("yes '{\"reward\": 1}'"), HasSubstr("more than a line"));
}

/// A model of the tests as a reward model's folder.
fs::path reward_folder(const std::string& name, int64_t labels, at::Tensor* score) {
  const fs::path folder = fs::path(::testing::TempDir()) / (name + std::to_string(getpid()));
  fs::remove_all(folder);
  save_model(test::tiny_model(7), folder);
  Json config = read_json(folder / "config.json");
  config["architectures"] = Json::array({"LlamaForSequenceClassification"});
  write_file(folder / "config.json", config.dump());
  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
  std::vector<TensorBytes> tensors(file.tensors().begin(), file.tensors().end());
  *score = at::arange(1, labels * 32 + 1, at::kFloat).reshape({labels, 32}) / 32;
  tensors.push_back({"score.weight",
                     DType::f32,
                     {labels, 32},
                     {static_cast<const std::byte*>(score->const_data_ptr()), score->nbytes()}});
  write_safetensors(folder / "with-score.safetensors", tensors);
  fs::rename(folder / "with-score.safetensors", folder / "model.safetensors");
  return folder;
}

TEST(Rewards, AModelScoresTheLastTokenOfTheConversation) {
  at::Tensor score;
  const fs::path folder = reward_folder("reward-model", 1, &score);
  const std::vector<double> rewards = reward("model:" + folder.string())(three());
  const Model plain = test::tiny_model(7);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<Message> messages = three()[i].prompt;
    messages.push_back({"assistant", three()[i].response});
    const auto ids = plain.text().encode(plain.chat_template().render(messages, false));
    const at::Tensor last = plain.transformer.hidden(ragged({ids})).select(0, std::ssize(ids) - 1);
    EXPECT_THAT(rewards[i], DoubleNear((last * score[0]).sum().item<double>(), 1e-4));
  }
  EXPECT_NE(rewards[0], rewards[1]);
  const fs::path two = reward_folder("reward-model-two", 2, &score);
  EXPECT_THAT(refused([&] { reward("model:" + two.string()); }), HasSubstr("2 labels"));
  save_model(test::tiny_model(7), folder / "lm");
  EXPECT_THAT(refused([&] { reward("model:" + (folder / "lm").string()); }), HasSubstr("score.weight"));
}

}  // namespace
}  // namespace kullback
