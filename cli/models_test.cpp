// convert, inspect and generate on tiny models.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Models : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = fresh_folder("models");
    save_model(tiny_model(), folder / "model");
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }
  static std::string model() { return (folder / "model").string(); }
  static inline fs::path folder;
};

TEST_F(Models, ConvertWritesWhatIsReadBack) {
  const std::string gguf = (folder / "tiny.gguf").string(), back = (folder / "back").string();
  ASSERT_EQ(run_program(fmt::format("convert {} {} --type f32", model(), gguf)).status, 0);
  ASSERT_EQ(run_program(fmt::format("convert {} {}", gguf, back)).status, 0);
  const std::string ask = " --prompt Hi --max-new-tokens 6 --raw";
  const Outcome ours = run_program("generate --model " + model() + ask);
  EXPECT_EQ(ours.status, 0) << ours.error;
  EXPECT_EQ(run_program("generate --model " + gguf + ask).out, ours.out);
  EXPECT_EQ(run_program("generate --model " + back + ask).out, ours.out);
  const Outcome again = run_program(fmt::format("convert {} {}", model(), gguf));
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.error, HasSubstr("not written over"));
  const Outcome folder_type = run_program(fmt::format("convert {} {}2 --type q8_0", model(), back));
  EXPECT_EQ(folder_type.status, 2);
  EXPECT_THAT(folder_type.error, HasSubstr("q8_0"));
  EXPECT_FALSE(fs::exists(back + "2"));
}

TEST_F(Models, InspectSaysWhatAModelIs) {
  const Outcome text = run_program("inspect " + model());
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, AllOf(HasSubstr("llama"), HasSubstr("parameters"), HasSubstr("BPE"), HasSubstr("MiB")));
  const Json json = parse_json(run_program("inspect --json " + model()).out, "inspect");
  EXPECT_EQ(json["config"]["model_type"], "llama");
  EXPECT_GT(json["parameters"].get<int64_t>(), 0);
  EXPECT_EQ(run_program("inspect " + (folder / "nothing").string()).status, 2);
}

TEST_F(Models, GenerateAnswersAFileAndAConversation) {
  const std::string prompts = written(folder / "prompts.jsonl", "{\"prompt\": \"Hi\"}\n{\"prompt\": \"Why?\"}\n");
  const std::string ask = fmt::format("generate --model {} --max-new-tokens 5 --temperature 1 ", model());
  const Outcome answers = run_program(ask + "--samples 2 --logps --top-logps 3 --prompts " + prompts);
  ASSERT_EQ(answers.status, 0) << answers.error;
  EXPECT_EQ(std::count(answers.out.begin(), answers.out.end(), '\n'), 4);
  const Json first = parse_json(answers.out.substr(0, answers.out.find('\n')), "answers");
  EXPECT_EQ(first["logps"].size(), first["ids"].size());
  EXPECT_EQ(first["top_logps"][0].size(), 3u);
  const auto completions = [](const std::string& lines) {
    std::vector<std::string> texts;
    for (size_t begin = 0; begin < lines.size(); begin = lines.find('\n', begin) + 1)
      texts.push_back(parse_json(lines.substr(begin, lines.find('\n', begin) - begin), "answers")["completion"]);
    return texts;
  };
  // A slot at a time, the same answers.
  EXPECT_EQ(completions(run_program(ask + "--samples 2 --slots 1 --prompts " + prompts).out), completions(answers.out));
  const Outcome talk = run_program(ask + "--chat < " + written(folder / "talk.txt", "Hi\n\nWhy?\n"));
  EXPECT_EQ(talk.status, 0) << talk.error;
  const Outcome both = run_program(ask + "--prompt Hi --chat");
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.error, HasSubstr("exclude one another"));
}

TEST_F(Models, ShortWeightsAnswerAndCompareSaysWhatTheyChange) {
  const std::string prompts = written(folder / "short.jsonl", "{\"prompt\": \"Hi\"}\n");
  std::vector<double> logps;
  for (const char* type : {"float32", "bfloat16", "int8"}) {
    const Outcome answer = run_program(fmt::format(
        "generate --model {} --weights {} --max-new-tokens 1 --logps --prompts {}", model(), type, prompts));
    ASSERT_EQ(answer.status, 0) << answer.error;
    logps.push_back(parse_json(answer.out, "answer")["logps"][0]);
  }
  EXPECT_NE(logps[0], logps[1]);
  EXPECT_NE(logps[0], logps[2]);
  for (const double logp : logps) EXPECT_NEAR(logp, logps[0], 0.1);

  const std::string rows = written(folder / "rows.jsonl", "{\"prompt\": \"Q\", \"completion\": \"An answer.\"}\n");
  const auto kl = [&](const std::string& weights) {
    const Outcome compared = run_program(fmt::format("compare {0} {0} --data {1} --json {2}", model(), rows, weights));
    EXPECT_EQ(compared.status, 0) << compared.error;
    return parse_json(compared.out, "comparison")["figures"]["kl"]["value"].get<double>();
  };
  const double int8 = kl("--b-weights int8"), bfloat16 = kl("--b-weights bfloat16");
  EXPECT_GT(bfloat16, 1e-9);
  EXPECT_GT(int8, 1e-9);
  EXPECT_LT(int8, 0.01);
  EXPECT_NEAR(kl("--a-weights int8 --b-weights int8"), 0, 1e-12);
}

}  // namespace
}  // namespace kullback::test
