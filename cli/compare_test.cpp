// `--method a,b,c`: several methods on the same rows.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(AlignCommand, ComparesSeveralMethodsOnTheSameRows) {
  const fs::path folder = fresh_folder("compared");
  save_model(tiny_model(), folder / "model");
  const std::string data = tiny_pairs(folder / "pairs.jsonl", 8);
  const fs::path out = folder / "runs";
  // --variant belongs to kto and ln-dpo alone, --loss-type to dpo alone.
  const std::string arguments = fmt::format(
      "align --method dpo,kto --loss-type ipo --model {} --data {} --max-steps 2 --samples 1 "
      "--sample-tokens 4 --output {}",
      (folder / "model").string(), data, out.string());
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json table = read_json(out / "comparison.json");
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table[0].at("method"), "dpo");
  EXPECT_GT(table[1].at("KL(policy || reference)").at("value").get<double>(), 0);
  EXPECT_GT(table[1].at("answers").get<double>(), 0);
  EXPECT_THAT(contents(out / "dpo/config.toml"), HasSubstr("ipo"));
  EXPECT_THAT(contents(out / "comparison.svg"), HasSubstr("kto"));
  EXPECT_TRUE(fs::exists(out / "comparison.html"));

  fs::remove_all(out / "kto");
  const Outcome again = run_program("align --resume " + out.string());
  ASSERT_EQ(again.status, 0) << again.error;
  Json table_again = read_json(out / "comparison.json");
  EXPECT_EQ(table_again[1].at("KL(policy || reference)"), table[1].at("KL(policy || reference)"));

  // What is wrong with the last method is said before the first is trained.
  const Outcome wrong =
      run_program(fmt::format("align --method f-dpo,dpo-kernels --divergence jsd --model {} --data {} --output {}",
                              (folder / "model").string(), data, (folder / "wrong").string()));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("--divergence"));
  EXPECT_FALSE(fs::exists(folder / "wrong"));

  const Outcome twice = run_program("align --method dpo,dpo --model x --data y --output " + (folder / "z").string());
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.error, HasSubstr("named twice"));
}

}  // namespace
}  // namespace kullback::test
