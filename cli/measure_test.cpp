// `kullback measure` from end to end.
#include <cmath>

#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/base/json.h"

namespace kullback::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Measure : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = fresh_folder("measure"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const { return written(folder_ / name, text); }

  /// Expects status 2, nothing on standard output and one sentence that matches.
  template <class Matcher>
  void expect_refused(const std::string& arguments, const Matcher& matcher) const {
    const Outcome outcome = run_program("measure " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.error, matcher) << arguments;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }

  std::filesystem::path folder_;
};

TEST_F(Measure, ProbabilitiesCountsAndGaussians) {
  const std::string p = file("p.json", "[0.5, 0.5]"), q = file("q.json", "[0.25, 0.75]");
  const double kl = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3);

  const Outcome all = run_program(fmt::format("measure {} {} --divergence all --json", p, q));
  ASSERT_EQ(all.status, 0) << all.error;
  const Json values = Json::parse(all.out);
  EXPECT_NEAR(values.at("kl").get<double>(), kl, 1e-15);
  EXPECT_NEAR(values.at("tv").get<double>(), 0.25, 1e-15);
  EXPECT_TRUE(values.contains("wasserstein-1") && values.contains("renyi:2") && values.contains("js:0.5"));

  const Outcome table = run_program(fmt::format("measure {} {} --divergence kl,js:0.3", p, q));
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("D(p||q)"), HasSubstr("0.1438"), HasSubstr("js:0.3")));

  const std::string counts = file("counts.csv", "outcome,p,q\nyes,2,1\nno,2,3\n");
  const Outcome counted = run_program(fmt::format("measure {} --numbers counts --divergence kl --json", counts));
  ASSERT_EQ(counted.status, 0) << counted.error;
  EXPECT_NEAR(Json::parse(counted.out).at("kl").get<double>(), kl, 1e-15);

  const std::string gaussians =
      file("g.json", R"({"p": {"mean": [1], "variance": [1]}, "q": {"mean": [0], "covariance": [[1]]}})");
  const Outcome normal = run_program(fmt::format("measure {} --json", gaussians));
  ASSERT_EQ(normal.status, 0) << normal.error;
  EXPECT_NEAR(Json::parse(normal.out).at("kl").get<double>(), 0.5, 1e-15);
  EXPECT_NEAR(Json::parse(normal.out).at("wasserstein-2").get<double>(), 1, 1e-15);

  const std::string apart = file("apart.json", R"({"p": [1, 0], "q": [0, 1]})");
  EXPECT_EQ(Json::parse(run_program(fmt::format("measure {} --divergence kl --json", apart)).out).at("kl"), "inf");
}

TEST_F(Measure, BadInputIsOneSentence) {
  const std::string p = file("p.json", "[0.5, 0.5]"), q = file("q.json", "[0.25, 0.75]");
  expect_refused(fmt::format("{} {} --divergence hellingr", p, q), HasSubstr("did you mean \"hellinger\""));
  expect_refused(fmt::format("{} {} --divergence js:1.5", p, q), HasSubstr("must be in (0, 1)"));
  expect_refused(fmt::format("{} {}", file("three.json", "[0.2, 0.3, 0.5]"), q),
                 HasSubstr("3 outcomes and the second 2"));
  expect_refused(fmt::format("{} {}", file("negative.json", "[1.5, -0.5]"), q), HasSubstr("probability 2 is -0.5"));
  expect_refused(fmt::format("{} {}", file("sum.json", "[0.5, 0.6]"), q), HasSubstr("sum to 1.1"));
  expect_refused(fmt::format("{} {}", (folder_ / "missing.json").string(), q), HasSubstr("missing.json"));
  expect_refused(fmt::format("{} {}", file("broken.csv", "0.5\nhalf\n"), q), HasSubstr("broken.csv: line 2"));
  expect_refused(fmt::format("{} {} --smoothing -1 --numbers counts", p, q), HasSubstr("--smoothing"));
  expect_refused(fmt::format("{} {} --smoothing 1", p, q), HasSubstr("--smoothing belongs to counts"));
  expect_refused(fmt::format("{} {} --numbers count", p, q), HasSubstr("counts"));
}

}  // namespace
}  // namespace kullback::test
