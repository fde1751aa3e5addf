// Averages of models, and a policy that is held to one while it learns what a reward asks: from end to end on tiny models.
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A model, a second one near it, and rows of prompts.
struct Kitchen {
  fs::path folder;
  std::string first, second, rows;

  explicit Kitchen(const std::string& name) : folder(fresh_folder(name)) {
    Model model = tiny_model(1);
    save_model(model, folder / "first");
    const at::NoGradGuard no_grad;
    uint64_t seed = 0;
    for (NamedTensor& one : model.transformer.parameters()) {
      at::manual_seed(++seed);
      one.tensor.add_(at::randn_like(one.tensor), 0.03);
    }
    save_model(model, folder / "second");
    std::string text;
    for (int i = 0; i < 10; ++i) text += fmt::format("{{\"prompt\": \"Say {}\", \"completion\": \"Yes {}\"}}\n", i, i);
    first = (folder / "first").string(), second = (folder / "second").string();
    rows = written(folder / "rows.jsonl", text);
  }
  std::string command(const std::string& run, const std::string& more) const {
    return fmt::format(
        "align --method salsa --model {} --soup {} --data {} --output {} --reward regex-count:[a-m] "
        "--response-tokens 6 --samples 1 --sample-tokens 6 {}",
        first, second, rows, (folder / run).string(), more);
  }
  std::vector<double> logged(const std::string& run, const std::string& figure) const {
    std::vector<double> all;
    read_jsonl(folder / run / "metrics.jsonl", [&](int64_t, const Json& row) {
      if (row.contains(figure)) all.push_back(row.at(figure).get<double>());
    });
    return all;
  }
};

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(SalsaCommand, LearnsWhatTheRewardAsks) {
  const Kitchen kitchen("salsa");
  const Outcome outcome = run_program(
      kitchen.command("run", "--epochs 40 --batch-size 8 --learning-rate 0.02 --num-ppo-epochs 2 --kl-coef 0.01"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::vector<double> scores = kitchen.logged("run", "train/score");
  ASSERT_GE(scores.size(), 20U);  // one of each rollout
  const std::span all(scores);
  EXPECT_GT(mean(all.last(5)), 2 * mean(all.first(5)) + 0.5);
  for (const char* figure : {"train/token_kl_k1", "train/token_kl_k3", "train/sequence_kl", "train/clip_fraction",
                             "train/approximate_kl", "train/policy_loss", "train/value_loss", "train/response_length"})
    EXPECT_FALSE(kitchen.logged("run", figure).empty()) << figure;
  const Json evaluation = read_json(kitchen.folder / "run" / "evaluation.json");
  EXPECT_GT(evaluation.at("before").at("kl_to_average")[0].get<double>(),
            1e-3);                                                          // the policy does not begin at the average
  EXPECT_NEAR(evaluation.at("before").at("kl")[0].get<double>(), 0, 1e-6);  // but where it was
  EXPECT_GT(evaluation.at("after").at("kl")[0].get<double>(), 1e-3);
  EXPECT_EQ(evaluation.at("answer_score").at("reward"), "regex-count:[a-m]");
  EXPECT_THAT(contents(kitchen.folder / "run" / "report.html"), HasSubstr("KL(policy || average)"));
}

TEST(SalsaCommand, WithAllWeightOnTheModelIsPlainPpo) {
  const Kitchen kitchen("salsa-alpha");
  ASSERT_EQ(run_program(kitchen.command("run", "--max-steps 1 --alpha 1")).status, 0);
  EXPECT_NEAR(kitchen.logged("run", "train/token_kl_k1").at(0), 0, 1e-6);
  const Json evaluation = read_json(kitchen.folder / "run" / "evaluation.json");
  EXPECT_NEAR(evaluation.at("before").at("kl_to_average")[0].get<double>(), 0, 1e-6);
}

TEST(SalsaCommand, AccumulatedBatchesMakeTheStepOfTheBigBatch) {
  const Kitchen kitchen("salsa-parts");
  const auto losses = [&](const std::string& run, const std::string& more) {
    const Outcome outcome = run_program(kitchen.command(
        run, "--epochs 3 --max-steps 4 --num-ppo-epochs 2 --learning-rate 0.01 --schedule constant " + more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return kitchen.logged(run, "train/loss");
  };
  const std::vector<double> whole = losses("whole", "--batch-size 4"),
                            parts = losses("parts", "--batch-size 2 --accumulation 2");
  ASSERT_EQ(whole.size(), 4U);
  ASSERT_EQ(parts.size(), 4U);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4 * std::max(1.0, std::abs(whole[i])));
}

TEST(SalsaCommand, AResumedRunEndsAsOneNeverStopped) {
  const Kitchen kitchen("salsa-resumed");
  const Outcome outcome = run_program(kitchen.command(
      "whole", "--max-steps 9 --num-rollouts 6 --num-ppo-epochs 2 --save-every 2 --keep 9 --learning-rate 0.01"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const fs::path whole = kitchen.folder / "whole", before = kitchen.folder / "before";
  fs::copy(whole, before, fs::copy_options::recursive);
  for (const char* step : {"00000004", "00000006", "00000008"})  // as if it had been killed between steps 2 and 4
    fs::remove_all(whole / "checkpoints" / (std::string("step-") + step));
  for (const char* made : {"adapter", "report.html", "evaluation.json"}) fs::remove_all(whole / made);
  const Outcome resumed = run_program("align --resume " + whole.string());
  ASSERT_EQ(resumed.status, 0) << resumed.error;
  EXPECT_EQ(contents(whole / "adapter" / "adapter_model.safetensors"),
            contents(before / "adapter" / "adapter_model.safetensors"));
  EXPECT_EQ(contents(whole / "metrics.jsonl"), contents(before / "metrics.jsonl"));
}

TEST(SalsaCommand, SaysWhatIsMissing) {
  const Kitchen kitchen("salsa-refused");
  const fs::path out = kitchen.folder / "run";
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome = run_program(fmt::format("align --method salsa --model {} --data {} --output {} {}",
                                                    kitchen.first, kitchen.rows, out.string(), arguments));
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.error, HasSubstr(why)) << arguments;
    EXPECT_FALSE(fs::exists(out)) << arguments;
  };
  refused("--soup " + kitchen.second, "--reward");
  refused("--reward length", "--soup");
  refused("--reward lenght --soup " + kitchen.second, "length");
  refused(fmt::format("--reward length --soup {},{} --alpha 0.3", kitchen.second, kitchen.first), "--alpha");
  refused("--reward length --soup-weights 1 --soup " + kitchen.second, "--soup-weights");
  refused("--reward length --policy-init soup --soup " + kitchen.second, "--policy-init");
  refused("--reward length --cache-reference --soup " + kitchen.second, "--cache-reference");
}

TEST(SalsaCommand, BeginsAtTheModelWithItsAdapterOrAtTheAverage) {
  const Kitchen kitchen("salsa-adapters");
  std::vector<std::string> adapters;
  for (const uint64_t seed : {1, 2}) {
    Model model = load_model(kitchen.first);
    add_lora(model.transformer, {.rank = 2, .alpha = 4}, seed);
    at::manual_seed(seed);
    for (NamedTensor& one : model.transformer.adapter()) one.tensor.detach().add_(at::randn_like(one.tensor), 0.1);
    adapters.push_back((kitchen.folder / fmt::format("adapter{}", seed)).string());
    save_adapter(model.transformer, adapters.back(), kitchen.first);
  }
  const auto before = [&](const std::string& run, const std::string& more) {
    const Outcome outcome = run_program(fmt::format(
        "align --method salsa --model {} --adapter {} --soup {} --data {} --output {} --reward length:characters "
        "--response-tokens 4 --samples 0 --max-steps 1 {}",
        kitchen.first, adapters[0], adapters[1], kitchen.rows, (kitchen.folder / run).string(), more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const Json figures = read_json(kitchen.folder / run / "evaluation.json").at("before");
    return std::pair{figures.at("kl")[0].get<double>(), figures.at("kl_to_average")[0].get<double>()};
  };
  const auto [moved, to_average] = before("model", "");
  EXPECT_NEAR(moved, 0, 1e-6);
  EXPECT_GT(to_average, 1e-3);
  EXPECT_NEAR(before("alone", "--alpha 1").second, 0, 1e-6);
  // The average holds its share of the adapter: a policy that begins there must not get it once more.
  const auto [still, at_average] = before("average", "--policy-init soup --train full");
  EXPECT_NEAR(still, 0, 1e-6);
  EXPECT_NEAR(at_average, 0, 1e-6);
}

TEST(SalsaCommand, IsComparedWithMethodsOnPairs) {
  const Kitchen kitchen("salsa-compared");
  const std::string pairs = tiny_pairs(kitchen.folder / "pairs.jsonl", 10);
  const fs::path out = kitchen.folder / "runs";
  const auto compared = [&](const std::string& more) {
    return run_program(fmt::format("align --method dpo,salsa --model {} --data {} --output {} --max-steps 2 {}",
                                   kitchen.first, pairs, out.string(), more));
  };
  // What salsa cannot do is said before dpo trains.
  for (const auto& [more, why] : {std::pair<std::string, std::string>{"", "--reward"},
                                  {"--reward length --soup " + kitchen.second + " --cache-reference", "--cache-ref"}}) {
    const Outcome refused = compared(more);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.error, HasSubstr(why));
    EXPECT_FALSE(fs::exists(out));
  }
  const Outcome outcome = compared(fmt::format(
      "--beta 0.2 --reward length:characters --response-tokens 4 --samples 1 --sample-tokens 4 --soup {} --json",
      kitchen.second));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Json table = Json::parse(outcome.out);
  EXPECT_THAT(table.dump(), AllOf(HasSubstr("dpo"), HasSubstr("salsa")));
  EXPECT_TRUE(fs::exists(out / "salsa" / "report.html"));
  EXPECT_GT(read_json(out / "salsa" / "evaluation.json").at("after").at("kl")[0].get<double>(), 0);
}

TEST(SalsaCommand, StaysWithinALimit) {
  const Kitchen kitchen("salsa-limit");
  const auto moved = [&](const std::string& run, const std::string& more) {
    const Outcome outcome = run_program(
        kitchen.command(run, "--epochs 30 --batch-size 8 --learning-rate 0.02 --num-ppo-epochs 2 --kl-coef 0 " + more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return read_json(kitchen.folder / run / "evaluation.json").at("after").at("kl")[0].get<double>();
  };
  const double free = moved("free", "");
  EXPECT_LT(moved("held", fmt::format("--limit \"kl<={}\"", free / 10)), free / 2);
}

TEST(SoupCommand, WritesTheWeightedAverage) {
  const Kitchen kitchen("soup");
  const fs::path out = kitchen.folder / "average";
  const Outcome outcome =
      run_program(fmt::format("soup {} {} --weights 3,1 --output {}", kitchen.first, kitchen.second, out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Model first = load_model(kitchen.first), second = load_model(kitchen.second), made = load_model(out.string());
  const auto a = first.transformer.parameters(), b = second.transformer.parameters(), c = made.transformer.parameters();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::allclose(c[i].tensor, 0.75 * a[i].tensor + 0.25 * b[i].tensor, 1e-6, 1e-7)) << c[i].name;
  EXPECT_EQ(made.text().vocabulary_size(), first.text().vocabulary_size());
}

TEST(SoupCommand, MergesAdaptersBeforeItAverages) {
  const Kitchen kitchen("soup-adapters");
  std::vector<Model> merged;
  for (const uint64_t seed : {1, 2}) {
    Model model = load_model(kitchen.first);
    add_lora(model.transformer, {.rank = 2, .alpha = 4}, seed);
    at::manual_seed(seed);
    for (NamedTensor& one : model.transformer.adapter()) one.tensor.detach().add_(at::randn_like(one.tensor), 0.1);
    save_adapter(model.transformer, kitchen.folder / fmt::format("adapter{}", seed), kitchen.first);
    merge_lora(model.transformer);
    merged.push_back(std::move(model));
  }
  const fs::path out = kitchen.folder / "average";
  const std::string adapters = (kitchen.folder / "adapter1").string() + " " + (kitchen.folder / "adapter2").string();
  EXPECT_THAT(run_program(fmt::format("soup {} --output {}", adapters, out.string())).error, HasSubstr("--base"));
  const Outcome outcome =
      run_program(fmt::format("soup {} --base {} --output {}", adapters, kitchen.first, out.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const at::NoGradGuard no_grad;
  const Model made = load_model(out.string());
  const at::Tensor mean_of_products =
      (merged[0].transformer.layers[1].up.weight + merged[1].transformer.layers[1].up.weight) / 2;
  EXPECT_TRUE(at::allclose(made.transformer.layers[1].up.weight, mean_of_products, 1e-5, 1e-6));
}

TEST(SoupCommand, RefusesModelsOfOtherLayouts) {
  const Kitchen kitchen("soup-refused");
  Model other = tiny_model(1);
  other.transformer = random_transformer(
      [&] {
        Config config = other.config();
        config.mlp_size = 40;
        return config;
      }(),
      3);
  save_model(other, kitchen.folder / "other");
  const fs::path out = kitchen.folder / "out";
  const Outcome outcome = run_program(
      fmt::format("soup {} {} --output {}", kitchen.first, (kitchen.folder / "other").string(), out.string()));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("other"), HasSubstr("mlp")));
  EXPECT_FALSE(fs::exists(out));
  Model renamed = tiny_model(1);  // of the same layout, where the last two tokens are other ones
  BpeSpec spec = byte_level_spec("tiny", {}, {"<|im_end|>", "<|im_start|>"});
  spec.special.bos = 256, spec.special.eos = 257;
  renamed.tokenizer = Tokenizer(spec);
  save_model(renamed, kitchen.folder / "renamed");
  EXPECT_THAT(run_program(fmt::format("soup {} {} --output {}", kitchen.first, (kitchen.folder / "renamed").string(),
                                      out.string()))
                  .error,
              AllOf(HasSubstr("renamed"), HasSubstr("tokenizer")));
  EXPECT_FALSE(fs::exists(out));
  EXPECT_THAT(
      run_program(fmt::format("soup {} {} --weights 1 --output {}", kitchen.first, kitchen.second, out.string())).error,
      HasSubstr("--weights"));
}

}  // namespace
}  // namespace kullback::test
