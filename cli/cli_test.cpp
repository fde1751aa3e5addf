// The program from end to end, on a random model small enough to train in seconds.
#include <sys/mount.h>

#include <csignal>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/base/registry.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string good_row = R"({"prompt": "Hi", "chosen": "Hello.", "rejected": "Go away, I am busy."})"
                             "\n";

class Program : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = fresh_folder("suite");
    save_model(tiny_model(), folder / "model");
    std::string rows;
    for (int i = 0; i < 12; ++i)
      rows += fmt::format("{{\"prompt\": \"Question {}?\", \"chosen\": \"Yes.\", \"rejected\": \"No, never {}.\"}}\n",
                          i, i);
    written(folder / "pairs.jsonl", rows);
  }
  static void TearDownTestSuite() { fs::remove_all(folder); }

  static std::string model() { return (folder / "model").string(); }
  static std::string pairs() { return (folder / "pairs.jsonl").string(); }

  /// Expects status 2, one sentence that matches, and no trace of an output folder.
  template <class Matcher>
  void expect_refused(const std::string& arguments, const Matcher& matcher, const fs::path& output = {}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.error;
    EXPECT_THAT(outcome.error, matcher) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    const auto last = outcome.error.find("kullback: ");
    ASSERT_NE(last, std::string::npos) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin() + static_cast<std::ptrdiff_t>(last), outcome.error.end(), '\n'), 1)
        << outcome.error;
    if (!output.empty()) {
      EXPECT_FALSE(fs::exists(output)) << arguments;
    }
  }
  template <class Matcher>
  void expect_align_refused(const std::string& arguments, const Matcher& matcher) {
    const fs::path output = folder / "refused";
    expect_refused(fmt::format("align --output {} {}", output.string(), arguments), matcher, output);
  }
  template <class Matcher>
  void expect_rows_refused(const std::string& rows, const Matcher& matcher, const std::string& more = "") {
    const std::string file = written(folder / "bad.jsonl", rows);
    expect_align_refused(fmt::format("--model {} --data {} --eval-fraction 0 {}", model(), file, more), matcher);
  }

  static fs::path folder;
};
fs::path Program::folder;

TEST_F(Program, ExplainsItself) {
  EXPECT_THAT(run_program("--help").out, AllOf(HasSubstr("align"), HasSubstr("check"), HasSubstr("Exit status")));
  EXPECT_THAT(run_program("align --help").out,
              AllOf(HasSubstr("--beta"), HasSubstr("--max-length"), HasSubstr("Examples")));
  EXPECT_THAT(run_program("methods").out, HasSubstr("dpo"));
  EXPECT_THAT(run_program("explain js:0.3").out, AllOf(HasSubstr("# js:0.3"), HasSubstr("Where a student lands")));
  EXPECT_THAT(run_program("explain --divergences").out, AllOf(HasSubstr("bhattacharyya"), HasSubstr("jensen-shannon")));
  EXPECT_THAT(run_program("explain dpo").out, AllOf(HasSubstr("2305.18290"), HasSubstr("--loss-type")));
  EXPECT_EQ(run_program("--version").status, 0);
}

TEST_F(Program, MethodsAsJson) {
  const Json json = Json::parse(run_program("methods --json --family alignment").out);
  ASSERT_FALSE(json.empty());
  for (const Json& method : json) EXPECT_EQ(method.at("family"), "alignment");
}

TEST_F(Program, RefusesWhatItDoesNotKnow) {
  expect_refused("algin", HasSubstr("did you mean \"align\""));
  expect_refused("explain dpi", HasSubstr("did you mean \"dpo\""));
  expect_refused("explain reverse-lk", HasSubstr("did you mean \"reverse-kl\""));
  expect_refused("explain", HasSubstr("--divergences"));
  expect_refused("explain dpo --plot dpo.svg", HasSubstr("'dpo' is a method"));
  expect_refused("methods --family alignmet", HasSubstr("did you mean \"alignment\""));
  expect_refused("pull smollm", HasSubstr("smollm2-135m-instruct"));
  expect_align_refused("--method dop --model x --data y", HasSubstr("did you mean \"dpo\""));
  expect_align_refused("--betta 1", HasSubstr("did you mean \"beta\""));
  expect_align_refused(fmt::format("--model {} --data {} --beta 0", model(), pairs()),
                       AllOf(HasSubstr("--beta"), HasSubstr("> 0")));
  expect_align_refused(fmt::format("--model {} --data {} --loss-type exo_pair", model(), pairs()),
                       HasSubstr("--label-smoothing"));
  expect_align_refused(fmt::format("--data {}", pairs()), HasSubstr("--model is missing"));
}

TEST_F(Program, RefusesModelsThatAreNone) {
  expect_align_refused("--model nowhere --data " + pairs(), HasSubstr("nowhere"));
  expect_align_refused(fmt::format("--model {} --data {}", pairs(), pairs()), HasSubstr("pairs.jsonl"));
  expect_align_refused(fmt::format("--model {} --data {}", fresh_folder("empty").string(), pairs()),
                       HasSubstr("config.json"));
  const fs::path truncated = folder / "truncated.gguf";
  written(truncated, std::string("GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\x07\0\0\0", 20));
  expect_align_refused(fmt::format("--model {} --data {}", truncated.string(), pairs()), HasSubstr("truncated.gguf"));

  Model broken = tiny_model();
  broken.transformer.layers[1].mlp_norm.weight[3] = std::nan("");
  save_model(broken, folder / "nan");
  expect_align_refused(fmt::format("--model {} --data {}", (folder / "nan").string(), pairs()),
                       AllOf(HasSubstr("model.layers.1.post_attention_layernorm.weight"), HasSubstr("NaN")));

  fs::copy(folder / "model", folder / "unknown", fs::copy_options::recursive);
  Json config = read_json(folder / "unknown/config.json");
  config["model_type"] = "mystery", config["architectures"] = Json::array({"MysteryForCausalLM"});
  written(folder / "unknown/config.json", config.dump());
  expect_align_refused(fmt::format("--model {} --data {}", (folder / "unknown").string(), pairs()),
                       HasSubstr("ystery"));
}

TEST_F(Program, RefusesRowsThatAreWrong) {
  expect_align_refused(fmt::format("--model {} --data {}", model(), (folder / "none.jsonl").string()),
                       HasSubstr("none.jsonl"));
  expect_align_refused(fmt::format("--model {} --data {}", model(), folder.string()), HasSubstr("directory"));
  expect_rows_refused(good_row + "{\"prompt\": \n", AllOf(HasSubstr("bad.jsonl"), HasSubstr("line 2")));
  expect_rows_refused(good_row + good_row + R"({"prompt": "Hi", "chosen": "Hello."})",
                      AllOf(HasSubstr("line 3"), HasSubstr("\"rejected\"")));
  expect_rows_refused(R"({"prompt": "Hi", "chosen": "", "rejected": "No."})",
                      AllOf(HasSubstr("line 1"), HasSubstr("empty")));
  expect_rows_refused(good_row, AllOf(HasSubstr("line 1"), HasSubstr("--max-length"), HasSubstr("tokens")),
                      "--max-length 10");
}

TEST_F(Program, RefusesAnOutputFolderThatIsNotEmpty) {
  const fs::path taken = fresh_folder("taken");
  written(taken / "precious.txt", "keep me");
  expect_refused(fmt::format("align --model {} --data {} --output {}", model(), pairs(), taken.string()),
                 HasSubstr("not empty"));
  EXPECT_EQ(contents(taken / "precious.txt"), "keep me");
  EXPECT_EQ(std::distance(fs::directory_iterator(taken), fs::directory_iterator()), 1);
}

TEST_F(Program, AFullDiskIsSaidInOneSentence) {
  const fs::path disk = fresh_folder("full-disk");
  if (geteuid() != 0 || mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=24k") != 0)
    GTEST_SKIP() << "a small disk can be made by root only";
  const Outcome outcome = run_program(fmt::format(
      "align --model {} --data {} --output {}/run --samples 0 --max-steps 2", model(), pairs(), disk.string()));
  EXPECT_FALSE(fs::exists(disk / "run/adapter/adapter_model.safetensors"));
  umount(disk.c_str());
  EXPECT_EQ(outcome.status, 2) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("No space left"));
}

TEST_F(Program, AlignsAndWritesARunThatCanBeReadBack) {
  const fs::path run = folder / "run";
  const Outcome outcome =
      run_program(fmt::format("align --model {} --data {} --output {} --epochs 8 --learning-rate 3e-3 --batch-size 4 "
                              "--samples 1 --sample-tokens 8 --eval-every 8",
                              model(), pairs(), run.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* name : {"config.toml", "metrics.jsonl", "evaluation.json", "report.html",
                           "adapter/adapter_config.json", "adapter/adapter_model.safetensors"}) {
    EXPECT_TRUE(fs::exists(run / name)) << name;
  }
  const Json evaluation = read_json(run / "evaluation.json");
  EXPECT_EQ(evaluation["before"]["kl"][0].get<double>(), 0);
  EXPECT_GT(evaluation["after"]["kl"][0].get<double>(), 0);
  EXPECT_LT(evaluation["after"]["loss"][0].get<double>(), evaluation["before"]["loss"][0].get<double>());

  const std::string ask = fmt::format("generate --model {} --prompt Hi --max-new-tokens 6", model());
  EXPECT_EQ(run_program(ask + " --adapter " + (run / "adapter").string()).status, 0);
  // The resolved configuration repeats the run to the last bit.
  const fs::path again = folder / "again";
  ASSERT_EQ(
      run_program(fmt::format("align --config {} --output {}", (run / "config.toml").string(), again.string())).status,
      0);
  EXPECT_EQ(contents(again / "adapter/adapter_model.safetensors"), contents(run / "adapter/adapter_model.safetensors"));
}

TEST_F(Program, FullWeightsGiveAModelOfTheirOwn) {
  const fs::path run = folder / "full";
  const Outcome outcome = run_program(
      fmt::format("align --train full --learning-rate 1e-3 --model {} --data {} --output {} --max-steps 3 --samples 0",
                  model(), pairs(), run.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(contents(run / "model/model.safetensors"), contents(folder / "model/model.safetensors"));
  EXPECT_EQ(
      run_program(fmt::format("generate --model {} --prompt Hi --max-new-tokens 4", (run / "model").string())).status,
      0);
}

TEST_F(Program, CtrlCStopsAfterTheStepAndTheRunGoesOnAsIfNeverStopped) {
  const std::string options =
      fmt::format("--model {} --data {} --epochs 40 --batch-size 2 --samples 0 --learning-rate 1e-3", model(), pairs());
  const fs::path whole = folder / "whole", stopped = folder / "stopped";
  ASSERT_EQ(run_program(fmt::format("align {} --output {}", options, whole.string())).status, 0);

  const std::string line = fmt::format("'{}' align {} --output {} 2>'{}/stop.err' & echo $!", KULLBACK_PROGRAM, options,
                                       stopped.string(), folder.string());
  FILE* shell = popen(line.c_str(), "r");
  int pid = 0;
  ASSERT_EQ(std::fscanf(shell, "%d", &pid), 1);
  const auto logged_steps = [&] {
    return contents(stopped / "metrics.jsonl").find("\"step\":5,") != std::string::npos;
  };
  for (int i = 0; i < 6000 && !logged_steps(); ++i) usleep(10000);
  kill(pid, SIGTERM);  // a background job of a shell has SIGINT ignored; both are handled alike
  pclose(shell);
  for (int i = 0; i < 6000 && kill(pid, 0) == 0; ++i) usleep(10000);
  EXPECT_THAT(contents(folder / "stop.err"), HasSubstr("kullback align --resume"));
  ASSERT_FALSE(fs::exists(stopped / "report.html")) << "the run was over before it could be stopped";

  const Outcome resumed = run_program("align --resume " + stopped.string());
  ASSERT_EQ(resumed.status, 0) << resumed.error;
  EXPECT_EQ(contents(stopped / "adapter/adapter_model.safetensors"),
            contents(whole / "adapter/adapter_model.safetensors"));
  EXPECT_EQ(run_program("align --resume " + stopped.string()).status, 2);  // complete
}

TEST_F(Program, ChecksFixtures) {
  EXPECT_EQ(run_program("check " KULLBACK_FIXTURES "/dpo.json").status, 0);
  Json fixture = read_json(KULLBACK_FIXTURES "/dpo.json");
  fixture["cases"][0]["expected"]["loss"] = 0.5;
  const Outcome wrong = run_program("check " + written(folder / "wrong.json", fixture.dump()));
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("FAILED"), HasSubstr("(loss)")));
  expect_refused("check " + written(folder / "broken.json", "{\"method\": "), HasSubstr("broken.json"));
  expect_refused("check " + written(folder / "kind.json", "{\"kind\": \"tokeniser\"}"),
                 HasSubstr("did you mean \"tokenizer\""));
  expect_refused("check " + written(folder / "method.json", "{\"method\": \"dpoo\", \"cases\": []}"),
                 HasSubstr("did you mean \"dpo\""));
}

TEST(Commands, EveryMethodsOptionsStandBesideThoseOfItsCommand) {
  for (const Method& method : methods()) {
    const char* command = method.family == Family::alignment      ? "align"
                          : method.family == Family::distillation ? "distill"
                                                                  : nullptr;
    if (command == nullptr || !method.recipe.has_value()) continue;
    const Outcome outcome = run_program(fmt::format("{} --method {} --help", command, method.name));
    EXPECT_EQ(outcome.status, 0) << method.name << ": " << outcome.error;
  }
}

TEST(DoctorCommand, FindsNothingWrongHere) {
  const Outcome outcome = run_program("doctor --json");
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  const Json json = Json::parse(outcome.out);
  EXPECT_TRUE(json.at("passed").get<bool>());
  EXPECT_EQ(json.at("tests").size(), 3U);
  EXPECT_NE(json.at("vector instructions").get<std::string>(), "");
}

}  // namespace
}  // namespace kullback::test
