// `kullback run`: grids of runs.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Grid {
  fs::path folder;
  std::string plan;
};

/// A plan over two methods, of which one alone has `beta`, and two seeds.
Grid tiny_grid(const std::string& name) {
  const fs::path folder = fresh_folder(name);
  save_model(tiny_model(), folder / "model");
  const std::string data = tiny_pairs(folder / "pairs.jsonl", 6);
  return {folder,
          written(folder / "plan.toml", fmt::format(R"(command = "align"
output = "{}"
[options]
model = "{}"
data = "{}"
max-steps = 1
samples = 0
[grid]
seed = [0, 1]
method = ["dpo", "ln-dpo"]
loss-type = ["sigmoid", "ipo"]
)",
                                                    (folder / "runs").string(), (folder / "model").string(), data))};
}

TEST(RunCommand, MakesEveryCombinationOnceAndSkipsWhatIsComplete) {
  const Grid grid = tiny_grid("grid");
  const Outcome first = run_program("run " + grid.plan);
  ASSERT_EQ(first.status, 0) << first.error;
  const Json table = read_json(grid.folder / "runs/table.json");
  ASSERT_FALSE(table.empty());
  EXPECT_EQ(table[0].at("method"), "dpo");
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(grid.folder / "runs")) folders += entry.is_directory();
  EXPECT_EQ(folders, table.size());
  EXPECT_THAT(contents(grid.folder / "runs/table.csv"), HasSubstr("kl_low"));
  const std::string before = contents(grid.folder / "runs/method=dpo,loss-type=ipo,seed=1/config.toml");
  EXPECT_THAT(before, HasSubstr("ipo"));

  const fs::path again = grid.folder / "runs/method=dpo,loss-type=ipo,seed=1";
  fs::remove_all(again);
  const Outcome second = run_program("run " + grid.plan);
  ASSERT_EQ(second.status, 0) << second.error;
  EXPECT_THAT(second.error, HasSubstr("complete"));
  EXPECT_TRUE(fs::exists(again / "report.html"));
  EXPECT_EQ(read_json(grid.folder / "runs/table.json"), table);
}

TEST(RunCommand, ListsWithoutRunning) {
  const Grid grid = tiny_grid("grid-list");
  const Outcome listed = run_program("run --list " + grid.plan);
  EXPECT_EQ(listed.status, 0) << listed.error;
  EXPECT_THAT(listed.out, HasSubstr("to do"));
  EXPECT_FALSE(fs::exists(grid.folder / "runs"));
}

TEST(RunCommand, SaysWhatIsWrongWithAPlan) {
  const fs::path folder = fresh_folder("grid-wrong");
  const auto refused = [&](const std::string& text, const std::string& why) {
    const Outcome outcome = run_program("run " + written(folder / "plan.toml", text));
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_THAT(outcome.error, HasSubstr(why));
  };
  refused("output = \"x\"", "command is missing");
  refused("command = \"algin\"\noutput = \"x\"", "did you mean \"align\"");
  refused("command = \"align\"\ngird = 3", "did you mean \"grid\"");
  refused("command = \"align\"\n[grid]\nbeta = 3", "grid.beta must be a list");
  refused("command = \"align\"\n[grid]\nbeta = [0.1]", "output is missing");
  refused("command = ", "plan.toml");
}

}  // namespace
}  // namespace kullback::test
