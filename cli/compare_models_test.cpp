// `kullback compare A B`.
#include <cmath>

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

double sampled(const Json& json, const char* side, const char* name) {
  return json.at("samples").at(side).at(name).at("value").get<double>();
}

TEST(CompareCommand, MeasuresBothDirectionsAndFindsNothingBetweenEquals) {
  const Two two = two_models("compare");
  const auto compared = [&](const std::string& a, const std::string& b, const std::string& more) {
    const Outcome outcome = run_program(fmt::format("compare {} {} --data {} --json {}", a, b, two.data, more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  const Json forth = compared(two.a, two.b, "--samples 40 --sample-tokens 6 --samples-from both"),
             back = compared(two.b, two.a, "");
  EXPECT_GT(figure(forth, "kl"), 0.01);
  EXPECT_NEAR(figure(forth, "kl"), figure(back, "reverse-kl"), 1e-6);
  EXPECT_NEAR(figure(forth, "tv"), figure(back, "tv"), 1e-6);
  EXPECT_NEAR(figure(forth, "loss_a"), figure(back, "loss_b"), 1e-6);
  // Three unbiased estimates of one number, 200 responses; from either side.
  for (const char* side : {"a", "b"}) {
    const double rb = sampled(forth, side, "rb");
    EXPECT_GT(rb, 0.01);
    for (const char* other : {"k1", "k3"}) EXPECT_NEAR(sampled(forth, side, other), rb, 0.15 * rb) << side << other;
    // The sum over a response is its length times the mean over tokens.
    EXPECT_NEAR(sampled(forth, side, "kl") * sampled(forth, side, "length"), rb, 1e-4 * rb);
  }
  EXPECT_FALSE(back.contains("samples"));
  // Classes and responses are parts of the whole.
  double tokens = 0, kl = 0;
  for (const Json& one : forth.at("by_response")) {
    tokens += one.at("tokens").get<double>();
    kl += one.at("kl").get<double>() * one.at("tokens").get<double>();
  }
  EXPECT_EQ(tokens, forth.at("tokens").get<double>());
  EXPECT_NEAR(kl / tokens, figure(forth, "kl"), 1e-9);
  for (const char* one : {"word start", "inside a word", "number", "white space", "special"})
    EXPECT_GT(forth.at("by_class").at(one).at("kl").at("value").get<double>(), 0) << one;
  const Json same = compared(two.a, two.a, "--samples 2");
  for (const char* name : {"kl", "js", "tv", "chi2"}) EXPECT_NEAR(figure(same, name), 0, 1e-6);
  for (const char* name : {"k1", "rb"}) EXPECT_NEAR(sampled(same, "a", name), 0, 1e-6);
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
  const std::string models = fmt::format("compare {} {} --data {} ", two.a, two.b, two.data);
  refused(models + "--reward length", "--samples");
  refused(models + "--samples 2 --reward lenght", "did you mean \"length\"");
  refused(models + "--samples 8 --best-of 4", "--reward");
  refused(models + "--samples 2 --reward length --best-of 4", "4 of 2");
  refused(models + "--samples 8 --samples-from b --reward length --best-of 4", "--samples-from");
  refused("compare " + two.a, "A B is missing");
  refused(fmt::format("compare {} {}", two.a, two.b), "--data is missing");
  refused(fmt::format("compare {} {}/none --data {}", two.a, two.folder.string(), two.data), "none");
}

TEST(CompareCommand, BestOfNStaysUnderItsBoundAndRaisesTheReward) {
  const Two two = two_models("compare-best");
  const auto best = [&](int n) {
    const Outcome outcome = run_program(
        fmt::format("compare {} {} --data {} --json --samples 64 --sample-tokens 8 --reward regex-count:[a-z] "
                    "--samples-from both --best-of {}",
                    two.a, two.b, two.data, n));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  const Json one = best(1), four = best(4);
  const auto value = [](const Json& json, const char* name) {
    return json.at("best_of_n").at(name).at("value").get<double>();
  };
  EXPECT_NEAR(value(one, "kl"), 0, 1e-12);
  EXPECT_NEAR(value(one, "reward"), sampled(one, "a", "reward"), 1e-9);
  const double bound = four.at("best_of_n").at("kl_bound").get<double>();
  EXPECT_NEAR(bound, std::log(4) - 0.75, 1e-12);
  EXPECT_GT(value(four, "kl"), 0.1);
  EXPECT_LT(value(four, "kl"), bound);
  EXPECT_GT(value(four, "reward"), sampled(four, "a", "reward"));
  EXPECT_NE(sampled(four, "a", "reward"), sampled(four, "b", "reward"));
}

TEST(CompareCommand, ARecordedTeacherIsASide) {
  const Two two = two_models("compare-record");
  const std::string record = (two.folder / "a.teacher").string();
  ASSERT_EQ(run_program(
                fmt::format("teacher record --teacher {} --data {} --output {} --k 258 --p 1", two.a, two.data, record))
                .status,
            0);
  const auto compared = [&](const std::string& models) {
    const Outcome outcome = run_program(fmt::format("compare {} --data {} --json", models, two.data));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return Json::parse(outcome.out);
  };
  // All tokens were kept, so that only the rounding of the store is left between the model and its record.
  const Json live = compared(two.a + " " + two.b), first = compared(record + " " + two.b),
             second = compared(two.b + " " + record);
  for (const char* name : {"kl", "reverse-kl", "tv", "loss_a", "loss_b"})
    EXPECT_NEAR(figure(first, name), figure(live, name), 2e-3 * figure(live, name)) << name;
  EXPECT_NEAR(figure(second, "kl"), figure(live, "reverse-kl"), 2e-3 * figure(live, "kl"));
  // Rows that were cut say nothing of the other tokens: from them KL is finite, to them it is not.
  ASSERT_EQ(
      run_program(fmt::format("teacher record --teacher {} --data {} --output {}.cut --k 8", two.a, two.data, record))
          .status,
      0);
  const Json cut = compared(record + ".cut " + two.b);
  EXPECT_GT(figure(cut, "kl"), 0);
  EXPECT_EQ(cut.at("figures").at("reverse-kl").at("value"), "inf");
  const auto refused = [&](const std::string& models, const std::string& why) {
    const Outcome bad = run_program(fmt::format("compare {} --data {}", models, two.data));
    EXPECT_EQ(bad.status, 2);
    EXPECT_THAT(bad.error, HasSubstr(why));
  };
  refused(record + " " + record, "one side must be a model");
  refused(fmt::format("{} {} --samples 2", record, two.b), "draws no responses");
  const std::string other = written(two.folder / "other.jsonl", "{\"prompt\": \"X\", \"completion\": \"Y\"}\n");
  const Outcome bad = run_program(fmt::format("compare {} {} --data {}", record, two.b, other));
  EXPECT_THAT(bad.error, HasSubstr("recorded of other rows"));
}

}  // namespace
}  // namespace kullback::test
