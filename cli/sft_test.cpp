// `kullback sft`, and limits, from end to end on a random model.
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

TEST(SftCommand, TrainsWithinALimitAndWritesTheRunFolder) {
  const fs::path folder = fresh_folder("sft");
  save_model(tiny_model(), folder / "model");
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += fmt::format("{{\"prompt\": \"Question {}?\", \"completion\": \"Yes, {}.\"}}\n", i, i);
  const std::string data = written(folder / "rows.jsonl", rows);
  const fs::path out = folder / "run";
  const Outcome outcome = run_program(
      fmt::format("sft --model {} --data {} --output {} --epochs 30 --learning-rate 0.01 --limit \"kl<=0.1,tv<=0.9\" "
                  "--samples 1 --sample-tokens 4",
                  (folder / "model").string(), data, out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* name : {"config.toml", "metrics.jsonl", "evaluation.json", "report.html",
                           "adapter/adapter_config.json", "tensorboard"}) {
    EXPECT_TRUE(fs::exists(out / name)) << name;
  }
  const Json evaluation = read_json(out / "evaluation.json");
  EXPECT_LT(evaluation.at("after").at("loss")[0].get<double>(), evaluation.at("before").at("loss")[0].get<double>());
  EXPECT_NEAR(evaluation.at("after").at("kl")[0].get<double>(), 0.1, 0.02);
  EXPECT_THAT(contents(out / "metrics.jsonl"),
              AllOf(HasSubstr("train/multiplier/kl"), HasSubstr("train/limit/tv"), HasSubstr("eval/chi2")));
  EXPECT_THAT(contents(out / "report.html"), HasSubstr("Multiplier of the limit"));
}

TEST(SftCommand, RefusesBadInputBeforeAnythingIsWritten) {
  const fs::path out = fresh_folder("sft-refused") / "run";
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome = run_program(fmt::format("sft --output {} {}", out.string(), arguments));
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.error, HasSubstr(why));
    EXPECT_FALSE(fs::exists(out));
  };
  refused("--model x --data y --limit kl", "--limit");
  refused("--model x --data y --limit \"kll<=1\"", "did you mean \"kl\"");
  refused("--model x", "--data is missing");
  refused("--data x", "--model is missing");
}

/// The training losses of a run, in order.
std::vector<double> losses(const fs::path& run) {
  std::vector<double> all;
  read_jsonl(run / "metrics.jsonl", [&](int64_t, const Json& row) {
    if (row.contains("train/loss")) all.push_back(row.at("train/loss").get<double>());
  });
  return all;
}

TEST(AlignCommand, MemoryIsSavedWithoutAnotherResult) {
  const fs::path folder = fresh_folder("memory");
  save_model(tiny_model(), folder / "model");
  const std::string data = tiny_pairs(folder / "pairs.jsonl", 8);
  const auto run = [&](const std::string& name, const std::string& more) {
    const fs::path out = folder / name;
    const Outcome outcome = run_program(fmt::format(
        "align --model {} --data {} --output {} --train full --learning-rate 0.001 --epochs 3 --samples 0 {}",
        (folder / "model").string(), data, out.string(), more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return std::pair{losses(out), outcome.error};
  };
  const std::vector<double> plain = run("plain", "").first;
  ASSERT_GT(plain.size(), 3U);
  EXPECT_EQ(run("recomputed", "--recompute").first, plain);  // to the last bit

  // Short weights: near, and with masters that learn.
  const std::vector<double> narrow = run("narrow", "--weights bfloat16").first;
  ASSERT_EQ(narrow.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(narrow[i], plain[i], 0.05) << i;
  EXPECT_LT(narrow.back(), 0.98 * narrow.front());

  // The reference's log-probabilities: computed once, then read, the run the same.
  setenv("KULLBACK_CACHE", (folder / "cache").c_str(), 1);
  EXPECT_EQ(run("cached", "--cache-reference").first, plain);
  const auto again = run("cached-again", "--cache-reference");
  unsetenv("KULLBACK_CACHE");
  EXPECT_EQ(again.first, plain);
  EXPECT_THAT(again.second, HasSubstr("the reference's log-probabilities are those of"));

  // Looking at gradients, each response's own, changes nothing either.
  EXPECT_EQ(run("diagnosed", "--diagnose-gradients 2").first, plain);
  const Json evaluation = read_json(folder / "diagnosed" / "evaluation.json");
  for (const char* when : {"before", "after"}) {
    for (const char* figure : {"cosine", "condition", "apart", "both_fall"})
      EXPECT_TRUE(evaluation.at(when).contains(fmt::format("gradients/{}", figure))) << evaluation.dump(1);
  }
}

}  // namespace
}  // namespace kullback::test
