// `kullback compare A B`.
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

struct Two {
  fs::path folder;
  std::string a, b, data;
};

Two two_models(const std::string& name) {
  const fs::path folder = fresh_folder(name);
  save_model(tiny_model(1), folder / "a");
  save_model(tiny_model(2), folder / "b");
  std::string rows;
  for (int i = 0; i < 5; ++i) rows += fmt::format("{{\"prompt\": \"Q{}\", \"completion\": \"Answer {}\"}}\n", i, i * i);
  return {folder, (folder / "a").string(), (folder / "b").string(), written(folder / "rows.jsonl", rows)};
}

double figure(const Json& json, const std::string& name) {
  return json.at("figures").at(name).at("value").get<double>();
}

TEST(CompareCommand, MeasuresBothDirectionsAndFindsNothingBetweenEquals) {
  const Two two = two_models("compare");
  const auto compared = [&](const std::string& a, const std::string& b, const std::string& more) {
    const Outcome outcome = run_program(fmt::format("compare {} {} --data {} --json {}", a, b, two.data, more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  const Json forth = compared(two.a, two.b, "--samples 40 --sample-tokens 6"), back = compared(two.b, two.a, "");
  EXPECT_GT(figure(forth, "kl"), 0.01);
  EXPECT_NEAR(figure(forth, "kl"), figure(back, "reverse-kl"), 1e-6);
  EXPECT_NEAR(figure(forth, "tv"), figure(back, "tv"), 1e-6);
  EXPECT_NEAR(figure(forth, "loss_a"), figure(back, "loss_b"), 1e-6);
  // Three unbiased estimates of one number, 200 responses.
  for (const char* other : {"sampled k1", "sampled k3"})
    EXPECT_NEAR(figure(forth, other), figure(forth, "sampled rb"), 0.15 * figure(forth, "sampled rb")) << other;
  const Json same = compared(two.a, two.a, "--samples 2");
  for (const char* name : {"kl", "js", "tv", "chi2", "sampled k1", "sampled rb"})
    EXPECT_NEAR(figure(same, name), 0, 1e-6);
  EXPECT_EQ(figure(same, "agreement"), 1);
}

TEST(CompareCommand, WritesAReportAndRefusesBadInput) {
  const Two two = two_models("compare-report");
  const fs::path out = two.folder / "compared";
  const std::string line = fmt::format("compare {} {} --data {} --output {}", two.a, two.b, two.data, out.string());
  const Outcome outcome = run_program(line);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("KL(A || B)"), HasSubstr("Where they differ most")));
  EXPECT_THAT(contents(out / "report.html"), HasSubstr("The responses that differ most"));
  EXPECT_TRUE(fs::exists(out / "by-place.svg"));
  const auto refused = [](const std::string& arguments, const std::string& why) {
    const Outcome bad = run_program(arguments);
    EXPECT_EQ(bad.status, 2) << arguments;
    EXPECT_THAT(bad.error, HasSubstr(why));
  };
  refused(line, "exists and is not empty");
  refused("compare " + two.a, "A B is missing");
  refused(fmt::format("compare {} {}", two.a, two.b), "--data is missing");
  refused(fmt::format("compare {} {}/none --data {}", two.a, two.folder.string(), two.data), "none");
}

}  // namespace
}  // namespace kullback::test
