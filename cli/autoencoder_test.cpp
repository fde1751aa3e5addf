// `kullback autoencoder`, and fpo with what it writes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/align/autoencoder_training.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(AutoencoderTraining, FindsTheFewDirectionsThatStatesAreMadeOf) {
  at::manual_seed(0);
  const at::Tensor directions = at::randn({6, 16}),
                   weights = at::rand({600, 6}) * (at::rand({600, 6}) < 0.3).to(at::kFloat);
  const at::Tensor states = at::matmul(weights, directions) + 2;
  const auto figures = [&](int64_t steps, double l1) {
    return autoencoder_figures(
        train_autoencoder(states, {.features = 32, .l1 = l1, .steps = steps, .batch_size = 64, .learning_rate = 3e-3}),
        states);
  };
  const AutoencoderFigures first = figures(1, 0.02), last = figures(600, 0.02), sparse = figures(600, 0.5);
  EXPECT_LT(last.unexplained, 0.05);
  EXPECT_LT(last.unexplained, 0.2 * first.unexplained);
  EXPECT_LT(sparse.active, 0.8 * last.active);
}

TEST(AutoencoderCommand, WritesWhatFpoReads) {
  const fs::path folder = fresh_folder("autoencoder");
  save_model(tiny_model(), folder / "model");
  std::string rows;
  for (int i = 0; i < 10; ++i)
    rows += fmt::format("{{\"prompt\": \"Q{}\", \"chosen\": \"Yes, {}.\", \"rejected\": \"No\"}}\n", i, i);
  const std::string data = written(folder / "pairs.jsonl", rows);
  const std::string model = (folder / "model").string(), file = (folder / "features.safetensors").string();
  for (const int layer : {0, 1}) {
    fs::remove(file);
    const Outcome made =
        run_program(fmt::format("autoencoder --model {} --data {} --layer {} --features 48 --steps 200 --batch-size 32 "
                                "--eval-fraction 0.3 --output {} --json",
                                model, data, layer, file));
    ASSERT_EQ(made.status, 0) << made.error;
    const Json figures = Json::parse(made.out);
    EXPECT_LT(figures.at("unexplained").get<double>(), 0.9);
    EXPECT_GT(figures.at("active").get<double>(), 0);
    for (const char* sae : {"relu", "jumprelu"}) {
      const Outcome outcome =
          run_program(fmt::format("align --method fpo --autoencoder {} --sae {} --layer {} --k 8 --model {} --data {} "
                                  "--output {} --max-steps 3 --samples 0",
                                  file, sae, layer, model, data, (folder / fmt::format("{}{}", sae, layer)).string()));
      EXPECT_EQ(outcome.status, 0) << outcome.error;
    }
    EXPECT_EQ(contents(folder / fmt::format("relu{}", layer) / "metrics.jsonl"),
              contents(folder / fmt::format("jumprelu{}", layer) / "metrics.jsonl"));
  }
  const auto refused = [&](const std::string& of, int k, const std::string& why) {
    const fs::path run = folder / "refused";
    const Outcome outcome =
        run_program(fmt::format("align --method fpo --autoencoder {} --k {} --model {} --data {} --output {}", file, k,
                                of, data, run.string()));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.error, HasSubstr(why));
    EXPECT_FALSE(fs::exists(run));
  };
  refused(model, 49, "--k");
  Model wide = tiny_model();
  Config config = wide.config();
  config.hidden_size = 48;
  wide.transformer = random_transformer(config, 2);
  save_model(wide, folder / "wide");
  refused((folder / "wide").string(), 8, "width 32");
  EXPECT_THAT(run_program(fmt::format("autoencoder --model {} --data {} --output {}", model, data, file)).error,
              HasSubstr("not written over"));
  fs::remove(file);
  EXPECT_THAT(
      run_program(fmt::format("autoencoder --model {} --data {} --layer 9 --output {}", model, data, file)).error,
      HasSubstr("--layer"));
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace kullback::test
