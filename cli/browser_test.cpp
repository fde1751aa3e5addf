// Every kind of page, opened in a real browser where there is one (Debian's package chromium): light, dark, tablet, phone.
#include "cli/run_program_test.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;

TEST(SlowPages, KeepTheirPromisesInABrowser) {
  const fs::path folder = fresh_folder("browser");
  save_model(tiny_model(1), folder / "model");
  tiny_pairs(folder / "pairs.jsonl", 24);
  const auto opened = [&](const std::string& arguments, const std::string& output, const char* page = "report.html") {
    const Outcome outcome = run_program(fmt::format("{} --quiet --output {}", arguments, (folder / output).string()));
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.error;
    const fs::path file = folder / output / page;
    EXPECT_LT(fs::file_size(file), 2'000'000U) << file;
    const std::string line =
        fmt::format("python3 '{}/tests/interop/report_in_browser.py' '{}' '{}' >'{}' 2>&1", KULLBACK_SOURCE,
                    file.string(), (folder / "shots").string(), (folder / "said").string());
    return WEXITSTATUS(std::system(line.c_str()));
  };
  const std::string model = (folder / "model").string(), pairs = (folder / "pairs.jsonl").string();
  const std::string training = fmt::format("--data {} --max-steps 4 --sample-tokens 8 --measure-every 1", pairs);
  const int first = opened(fmt::format("align --model {} {}", model, training), "run");
  if (first == 77) GTEST_SKIP() << contents(folder / "said");  // no browser that starts
  EXPECT_EQ(first, 0) << contents(folder / "said");
  const std::string adapter = (folder / "run/adapter").string();
  EXPECT_EQ(opened(fmt::format("align --method dpo,kto --model {} {}", model, training), "compared", "comparison.html"),
            0)
      << contents(folder / "said");
  EXPECT_EQ(
      opened(fmt::format("compare {} {} --data {} --samples 2 --sample-tokens 8", model, adapter, pairs), "apart"), 0)
      << contents(folder / "said");
  EXPECT_EQ(opened(fmt::format("frontier {}", (folder / "compared").string()), "frontier"), 0)
      << contents(folder / "said");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kullback::test
