// The commands world and claim from end to end.
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/base/json.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_refused(const std::string& arguments, const std::string& why) {
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.status, 2) << arguments;
  EXPECT_THAT(outcome.error, HasSubstr(why)) << arguments;
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  EXPECT_EQ(outcome.out, "") << arguments;
}

TEST(WorldCommand, ShowsAWorldItsOptimumAndItsFrontier) {
  const Outcome outcome = run_program("world --frontier 5");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("7 prefixes and 15 responses"), HasSubstr("optimum, beta 1"),
                                 HasSubstr("best of 16"), HasSubstr("Exact frontier")));
}

TEST(WorldCommand, SaysWhereAMethodLands) {
  const fs::path plot = fresh_folder("world") / "landing.svg";
  const Outcome outcome = run_program(fmt::format(
      "world --method dpo --beta 0.8 --length 2 --steps 600 --frontier 4 --json --optimum-beta 0.8 --plot {}",
      plot.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json json = Json::parse(outcome.out);
  const Json& standings = json.at("standings");
  const Json &optimum = standings.at(1), &landed = standings.back();
  EXPECT_EQ(landed.at("policy"), "dpo");
  EXPECT_NEAR(landed.at("reward").get<double>(), optimum.at("reward").get<double>(), 1e-3);
  EXPECT_THAT(contents(plot), AllOf(HasSubstr("<svg"), HasSubstr("exact frontier"), HasSubstr("dpo")));
}

TEST(WorldCommand, SampledNoisyPairsLandShortOfTheFrontier) {
  const Outcome outcome = run_program(
      "world --method dpo --beta 0.5 --length 2 --steps 300 --pairs 50 --label-noise 0.2 --frontier 3 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json landed = Json::parse(outcome.out).at("standings").back();
  EXPECT_GT(landed.at("most at this KL").get<double>() - landed.at("reward").get<double>(), 0.01);
}

TEST(WorldCommand, RefusesWhatItCannotBuild) {
  expect_refused("world --vocabulary 9", "--vocabulary");
  expect_refused("world --reward lenght", "did you mean \"length\"");
  expect_refused("world --method dop", "did you mean \"dpo\"");
  expect_refused("world --method kl-estimators", "kl-estimators");
  expect_refused("world --method dpo --label-noise 0.1", "--label-noise");
  expect_refused("world --beta 1", "--beta");
  expect_refused("world --distances kll", "did you mean \"kl\"");
  expect_refused("world --method dpo --vocabulary 6 --length 5", "sample pairs");
  expect_refused("world --frontier 2 --plot nowhere/at/all.svg", "nowhere/at/all.svg");
}

TEST(ClaimCommand, ListsAndRefuses) {
  EXPECT_THAT(run_program("claim --list").out, AllOf(HasSubstr("dpo-reference"), HasSubstr("kl-gradients")));
  expect_refused("claim", "--all");
  expect_refused("claim dpo --all", "--all");
  expect_refused("claim kl-gradient", "did you mean \"kl-gradients\"");
}

TEST(ClaimCommand, PassesWithTheMethodAndFailsWithItsBaseline) {
  const Outcome outcome = run_program("claim kl-estimators");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("PASS kl-gradients"), HasSubstr("fails, as it must"), HasSubstr("3 of 3 claims pass")));
  const Outcome swapped = run_program("claim kl-gradients --with-baseline");
  EXPECT_EQ(swapped.status, 1);
  EXPECT_THAT(swapped.out, AllOf(HasSubstr("FAIL kl-gradients"), HasSubstr("FAILS")));
}

TEST(SlowClaims, AllPassAndWriteTheirPlots) {
  const fs::path plots = fresh_folder("claims") / "new";
  const Outcome outcome = run_program(fmt::format("claim --all --json --plot {}", plots.string()));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json claim = Json::parse(line);
    EXPECT_TRUE(claim.at("passed").get<bool>()) << claim.at("assertions").dump(1);
    EXPECT_TRUE(claim.at("fails_with_baseline").get<bool>()) << claim.at("claim");
  }
  EXPECT_GE(count, 5);
  EXPECT_THAT(contents(plots / "dpo.svg"), HasSubstr("exact frontier"));
}

}  // namespace
}  // namespace kullback::test
