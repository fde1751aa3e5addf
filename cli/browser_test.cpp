// Every kind of page, opened in a real browser where there is one (Debian's package chromium): light, dark, tablet, phone.
#include "cli/run_program_test.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;

TEST(SlowPages, KeepTheirPromisesInABrowser) {
  if (std::system("command -v chromium >/dev/null && command -v python3 >/dev/null") != 0)
    GTEST_SKIP() << "no Chromium";
  const fs::path folder = fresh_folder("browser");
  save_model(tiny_model(1), folder / "model");
  tiny_pairs(folder / "pairs.jsonl", 24);
  const auto made = [&](const std::string& arguments, const std::string& output, const char* page = "report.html") {
    const Outcome outcome = run_program(fmt::format("{} --quiet --output {}", arguments, (folder / output).string()));
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.error;
    const fs::path file = folder / output / page;
    EXPECT_LT(fs::file_size(file), 2'000'000U) << file;
    const std::string line =
        fmt::format("python3 '{}/tests/interop/report_in_browser.py' '{}' '{}' >'{}' 2>&1", KULLBACK_SOURCE,
                    file.string(), (folder / "shots").string(), (folder / "said").string());
    const int status = WEXITSTATUS(std::system(line.c_str()));
    EXPECT_TRUE(status == 0 || status == 77) << output << "\n" << contents(folder / "said");
    return status == 0;
  };
  const std::string model = (folder / "model").string(), pairs = (folder / "pairs.jsonl").string();
  const std::string training = fmt::format("--data {} --max-steps 4 --sample-tokens 8 --measure-every 1", pairs);
  if (!made(fmt::format("align --model {} {}", model, training), "run")) GTEST_SKIP() << contents(folder / "said");
  made(fmt::format("align --method dpo,kto --model {} {}", model, training), "compared", "comparison.html");
  made(fmt::format("compare {} {} --data {} --samples 2 --sample-tokens 8", model, (folder / "run/adapter").string(),
                   pairs),
       "apart");
  made(fmt::format("frontier {}", (folder / "compared").string()), "frontier");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kullback::test
