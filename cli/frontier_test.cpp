// `kullback frontier`: runs, comparisons, worlds and checkpoints.
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

Json frontier(const std::string& arguments) {
  const Outcome outcome = run_program("frontier --json " + arguments);
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.error;
  return outcome.status == 0 ? Json::parse(outcome.out) : Json();
}

void refused(const std::string& arguments, const std::string& why) {
  const Outcome outcome = run_program("frontier " + arguments);
  EXPECT_EQ(outcome.status, 2) << arguments;
  EXPECT_THAT(outcome.error, HasSubstr(why)) << arguments;
  EXPECT_EQ(outcome.out, "") << arguments;
}

/// A folder with what `kullback frontier` reads of a run.
std::string made_run(const fs::path& folder, double kl, double likelier, double before = 0.4) {
  fs::create_directories(folder);
  const Json evaluation{
      {"before", {{"kl", {0, 0, 0}}, {"likelier", {before, before - 0.1, before + 0.1}}, {"loss", {1.5, 1, 2}}}},
      {"after",
       {{"kl", {kl, kl * 0.9, kl * 1.1}},
        {"likelier", {likelier, likelier - 0.1, likelier + 0.1}},
        {"loss", {1 - likelier, 0, 1}}}}};
  written(folder / "evaluation.json", evaluation.dump());
  return folder.string();
}

const Json& policy(const Json& json, const std::string& name) {
  for (const Json& one : json.at("policies")) {
    if (one.at("policy") == name) return one;
  }
  ADD_FAILURE() << "no policy " << name << " in " << json.dump(1);
  return json;
}

TEST(FrontierCommand, DrawsRunsAsTheyWroteThemselves) {
  const fs::path folder = fresh_folder("frontier");
  const std::string near = made_run(folder / "runs/near", 0.1, 0.7), far = made_run(folder / "runs/far", 0.5, 0.9),
                    bad = made_run(folder / "runs/bad", 0.3, 0.6);
  const Json json = frontier(fmt::format("{} {} {}", near, far, bad));
  EXPECT_EQ(json.at("divergence"), "kl");
  EXPECT_EQ(json.at("reward"), "likelier");
  ASSERT_EQ(json.at("policies").size(), 4U);
  EXPECT_EQ(json.at("policies")[0].at("policy"), "before");  // all began with the same
  for (const auto& [name, on] : {std::pair{"before", "yes"}, {"near", "yes"}, {"far", "yes"}, {"bad", ""}})
    EXPECT_EQ(policy(json, name).at("on the front"), on) << name;
  // A folder of runs is all of them; less of a loss is better.
  EXPECT_EQ(frontier((folder / "runs").string()).at("policies").size(), 4U);
  const Json loss = frontier((folder / "runs").string() + " --figure loss");
  EXPECT_EQ(loss.at("better"), "lower");
  EXPECT_EQ(policy(loss, "bad").at("on the front"), "");

  const fs::path out = folder / "out";
  const Outcome outcome = run_program(fmt::format("frontier {} --output {}", (folder / "runs").string(), out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("near"), HasSubstr("report.html")));
  EXPECT_THAT(contents(out / "report.html"), HasSubstr("Pareto front"));
  EXPECT_THAT(contents(out / "frontier.svg"), AllOf(HasSubstr("<svg"), HasSubstr("far")));
  EXPECT_THAT(contents(out / "frontier.csv"), HasSubstr("_low"));
  EXPECT_EQ(read_json(out / "frontier.json").at("policies").size(), 4U);

  // Runs that began at different places have a beginning each.
  const std::string other = made_run(folder / "other/near", 0.2, 0.8, 0.5);
  EXPECT_EQ(frontier(near + " " + other).at("policies").size(), 4U);
  EXPECT_NE(policy(frontier(near + " " + other), "other/near"), Json());
  EXPECT_THAT(frontier(near + " " + other).at("caution"), HasSubstr("other held-out rows"));
  EXPECT_FALSE(json.contains("caution"));

  refused(near + " --figure likelyer", "did you mean \"likelier\"");
  refused(near + " --divergence kll", "all of the runs have");
  refused(near + " --reward length", "--data is missing");
  refused(near + " --output " + (folder / "runs").string(), "not empty");
  refused((folder / "nothing").string(), "no such folder");
  refused(folder.string(), "evaluation.json");
}

TEST(FrontierCommand, AWorldBringsItsExactFrontier) {
  const fs::path folder = fresh_folder("frontier-world");
  const std::string world = "world --length 2 --steps 400 --frontier 9 --quiet --method dpo";
  for (const char* beta : {"0.5", "2"}) {
    const Outcome outcome =
        run_program(fmt::format("{} --beta {} --output {}/beta-{}", world, beta, folder.string(), beta));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }
  const Json json = frontier(fmt::format("{0}/beta-0.5 {0}/beta-2/world.json", folder.string()));
  ASSERT_EQ(json.at("exact").size(), 1U);  // one world
  EXPECT_EQ(json.at("exact")[0].at("divergence").size(), 9U);
  EXPECT_EQ(policy(json, "reference").at("on the front"), "yes");
  for (const Json& one : json.at("policies")) {
    const double reward = one.at("Expected reward").at("value").get<double>();
    EXPECT_LE(reward, one.at("exact frontier there").get<double>() + 1e-6) << one.dump();
  }
  EXPECT_GT(json.at("policies").size(), 5U);
  made_run(folder / "run", 0.1, 0.7);
  refused(fmt::format("{0}/beta-2 {0}/run", folder.string()), "apart");
  refused(fmt::format("{}/beta-2 --figure loss", folder.string()), "its own reward");
  EXPECT_EQ(run_program(fmt::format("{} --beta 1 --output {}/beta-2", world, folder.string())).status, 2);
}

TEST(FrontierCommand, ComparisonsAndCheckpointsAreMeasured) {
  const fs::path folder = fresh_folder("frontier-measured");
  save_model(tiny_model(1), folder / "base");
  save_model(tiny_model(2), folder / "other");
  const std::string pairs = tiny_pairs(folder / "pairs.jsonl", 8), base = (folder / "base").string(),
                    run = (folder / "run").string();
  const Outcome trained = run_program(fmt::format(
      "align --model {} --data {} --output {} --max-steps 3 --learning-rate 3e-3 --samples 0 --eval-data {}", base,
      pairs, run, pairs));
  ASSERT_EQ(trained.status, 0) << trained.error;

  // Measured anew on the rows that the run was evaluated on, its numbers are those that it wrote.
  const std::string on_pairs = fmt::format("{} {} --data {}", run, (folder / "other").string(), pairs);
  const Json measured = frontier(on_pairs);
  const Json after = read_json(folder / "run/evaluation.json").at("after");
  EXPECT_NEAR(policy(measured, "run").at("KL(policy ‖ reference)").at("value").get<double>(),
              after.at("kl")[0].get<double>(), 1e-5);
  EXPECT_NEAR(policy(measured, "run").at("Chosen is likelier a token").at("value").get<double>(),
              after.at("likelier")[0].get<double>(), 1e-9);
  EXPECT_GT(policy(measured, "other").at("KL(policy ‖ reference)").at("value").get<double>(), 0.01);
  EXPECT_NEAR(policy(measured, "reference").at("KL(policy ‖ reference)").at("value").get<double>(), 0, 1e-9);
  const Json accuracy = frontier(on_pairs + " --figure accuracy --divergence reverse_kl");
  EXPECT_NEAR(policy(accuracy, "run").at("Preference accuracy").at("value").get<double>(),
              after.at("accuracy")[0].get<double>(), 1e-9);

  const Json rewarded = frontier(on_pairs + " --reward length --samples 3 --sample-tokens 6");
  const double length = policy(rewarded, "run").at("Mean reward length:tokens").at("value").get<double>();
  EXPECT_GT(length, 0);
  EXPECT_LE(length, 6);
  EXPECT_EQ(rewarded.at("divergence"), "sequence_kl");

  const std::string compared = (folder / "compared").string();
  ASSERT_EQ(run_program(fmt::format("compare {} {} --data {} --samples 4 --samples-from both --reward length "
                                    "--sample-tokens 6 --output {}",
                                    base, (folder / "other").string(), pairs, compared))
                .status,
            0);
  const Json of_comparison = frontier(compared);
  EXPECT_EQ(of_comparison.at("reward"), "reward");
  EXPECT_EQ(of_comparison.at("policies").size(), 2U);
  EXPECT_NEAR(policy(of_comparison, "compared").at("KL(policy ‖ reference)").at("value").get<double>(),
              read_json(folder / "compared/comparison.json").at("figures").at("reverse-kl").at("value").get<double>(),
              1e-12);

  refused((folder / "other").string(), "--data and --reference");
  refused(fmt::format("{} --data {}", (folder / "other").string(), pairs), "--reference");
  refused(fmt::format("{} --data {}", compared, pairs), "name its models");
  refused(fmt::format("{} --data {} --reference {}", run, pairs, (folder / "other").string()), "not of the reference");
}

}  // namespace
}  // namespace kullback::test
