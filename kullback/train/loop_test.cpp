#include "kullback/train/loop.h"

#include <cstring>
#include <fstream>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/lm/lora.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/preference_task.h"
#include "kullback/train/tiny_model_test.h"
#include "kullback/train/weight_average.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct SquareOptions {
  double scale = 1;
};

/// A recipe of this test's own: needs the reference's log-probabilities and both divergences of the rows.
const Registered recipe_of_test{
    preference_method<SquareOptions>("test-square")
        .summary("for tests")
        .option("scale", &SquareOptions::scale, positive, "scale")
        .needs([](const SquareOptions&) {
          return Needs{.reference_logps = true,
                       .divergences = {divergence("kl").from_policy(), divergence("kl").from_reference()}};
        })
        .loss([](const PreferenceBatch& b, const SquareOptions& o) {
          const at::Tensor w = sequence_sum(b.chosen.logps - b.chosen.reference_logps, b.chosen.mask);
          const at::Tensor l = sequence_sum(b.rejected.logps - b.rejected.reference_logps, b.rejected.mask);
          const at::Tensor drift =
              sequence_sum(b.chosen.divergences.at(0) + b.rejected.divergences.at(1), b.chosen.mask & b.rejected.mask);
          const at::Tensor losses = (o.scale * (w - l) - 1).square() + 0.1 * drift;
          return PreferenceLoss{
              mean_over_pairs(losses, b), losses, w.detach(), l.detach(), {{"drift", drift.detach()}}};
        })};

PreferenceData pairs_of(const Model& model, int count) {
  PreferenceData data{.path = "pairs.jsonl", .pairs = {}, .counts = {}};
  for (int i = 0; i < count; ++i) {
    PreferencePair pair;
    pair.line = i + 1;
    pair.prompt = {{"user", "question " + std::to_string(i)}};
    pair.chosen = encode_response(model, pair.prompt, "yes " + std::string(static_cast<size_t>(i % 5), '!'),
                                  DataOptions::TextFormat::chat);
    pair.rejected =
        encode_response(model, pair.prompt, "certainly not " + std::to_string(i), DataOptions::TextFormat::chat);
    data.pairs.push_back(std::move(pair));
  }
  return data;
}

/// A tiny run with everything in place.
struct TinyRun {
  Model model = test::tiny_model(1, at::kDouble);
  std::shared_ptr<void> options;
  const Method* method;
  OptimizerOptions optimizer_options{.learning_rate = 1e-2, .schedule = OptimizerOptions::Schedule::linear};
  std::unique_ptr<PreferenceTask> task;
  std::unique_ptr<Optimizer> optimizer;

  explicit TinyRun(const std::vector<std::string>& limits = {},
                   OptimizerOptions::Rule rule = OptimizerOptions::Rule::adamw, int pairs = 7)
      : method(&find_method("test-square")) {
    optimizer_options.optimizer = rule;
    options = method->options->defaults();
    add_lora(model.transformer, {.rank = 2, .alpha = 4}, 3);
    task = std::make_unique<PreferenceTask>(model.transformer, Reference{&model.transformer, AdapterUse::off}, *method,
                                            options.get(), pairs_of(model, pairs), pairs_of(model, 3),
                                            std::vector<int32_t>{256}, Limits(LimitOptions{.limit = limits}));
    optimizer = std::make_unique<Optimizer>(model.transformer.trainable(), optimizer_options);
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const NamedTensor& p : model.transformer.trainable()) {
      const at::Tensor flat = p.tensor.detach().reshape(-1).contiguous();
      all.insert(all.end(), flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
    }
    return all;
  }
};

fs::path fresh_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(Schedule, EveryRowComesOnceAnEpochInAnOrderOfTheSeed) {
  const LoopOptions options{.epochs = 2, .batch_size = 3, .seed = 5};
  const Schedule schedule(options, 9);
  ASSERT_EQ(schedule.steps(), 6);
  std::multiset<int64_t> seen;
  for (int64_t step = 0; step < 3; ++step) {
    for (const int64_t example : schedule.step_examples(step)) seen.insert(example);
  }
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 9u);
  EXPECT_EQ(schedule.step_examples(4), Schedule(options, 9).step_examples(4));
  EXPECT_NE(schedule.step_examples(0), Schedule({.epochs = 2, .batch_size = 3, .seed = 6}, 9).step_examples(0));
  EXPECT_NE(schedule.step_examples(0), schedule.step_examples(3));
}

TEST(Schedule, StepsCoverTheEpochsAndStopAtTheLimit) {
  EXPECT_EQ(Schedule({.epochs = 1, .batch_size = 4}, 10).steps(), 3);
  EXPECT_EQ(Schedule({.epochs = 0.5, .batch_size = 2}, 10).steps(), 3);
  EXPECT_EQ(Schedule({.epochs = 1, .max_steps = 2, .batch_size = 1}, 10).steps(), 2);
  EXPECT_EQ(Schedule({.epochs = 1, .batch_size = 16}, 10).step_examples(0).size(), 10u);
}

TEST(Schedule, LearningRatesFollowTheirCourse) {
  using S = OptimizerOptions::Schedule;
  const auto factor = [](S s, int64_t step) {
    return schedule_factor({.schedule = s, .warmup = 0.1, .decay = 0.2}, step, 100);
  };
  EXPECT_NEAR(factor(S::constant, 0), 1.0 / 11, 1e-12);
  EXPECT_EQ(factor(S::constant, 99), 1);
  EXPECT_NEAR(factor(S::linear, 55), 0.5, 1e-12);
  EXPECT_NEAR(factor(S::cosine, 55), 0.5, 1e-12);
  EXPECT_EQ(factor(S::wsd, 79), 1);
  EXPECT_NEAR(factor(S::wsd, 90), 0.5, 1e-12);
}

TEST(Loop, AccumulatedBatchesMakeTheSameStepAsTheBigBatch) {
  TinyRun whole, parts;
  const std::vector<int64_t> examples{0, 1, 2, 3, 4, 5};
  const Figures a = train_step(*whole.task, *whole.optimizer, whole.optimizer_options, examples, 6, 1e-2, false);
  const Figures b = train_step(*parts.task, *parts.optimizer, parts.optimizer_options, examples, 2, 1e-2, false);
  EXPECT_NEAR(a.at("loss").value(), b.at("loss").value(), 1e-10);
  EXPECT_NEAR(a.at("grad_norm").value(), b.at("grad_norm").value(), 1e-9);
  const auto first = whole.weights(), second = parts.weights();
  for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], second[i], 1e-9);
}

TEST(Loop, TrainingLowersTheLossAndMovesThePolicy) {
  TinyRun run;
  const LoopResult result = run_loop(*run.task, *run.optimizer, {.epochs = 6, .batch_size = 2, .measure_every = 1},
                                     run.optimizer_options, fresh_folder("lowers"));
  EXPECT_LT(result.after.at("loss").value, result.before.at("loss").value);
  EXPECT_NEAR(result.before.at("kl").value, 0, 1e-12);
  EXPECT_GT(result.after.at("kl").value, 1e-6);
  EXPECT_GE(result.after.at("kl").value, result.after.at("kl").low);
  EXPECT_LE(result.after.at("kl").value, result.after.at("kl").high);
}

TEST(Loop, TheSameSeedGivesTheSameWeightsToTheLastBit) {
  TinyRun first, second;
  run_loop(*first.task, *first.optimizer, {.epochs = 2, .batch_size = 2}, first.optimizer_options,
           fresh_folder("same-1"));
  run_loop(*second.task, *second.optimizer, {.epochs = 2, .batch_size = 2}, second.optimizer_options,
           fresh_folder("same-2"));
  EXPECT_EQ(first.weights(), second.weights());
}

TEST(Loop, AResumedRunEndsAsOneNeverStopped) {
  const LoopOptions options{.epochs = 3, .batch_size = 2, .save_every = 4, .keep = 1};
  TinyRun whole;
  run_loop(*whole.task, *whole.optimizer, options, whole.optimizer_options, fresh_folder("whole"));
  const fs::path folder = fresh_folder("resumed");
  {
    TinyRun stopped;  // killed after the checkpoint of step 4, somewhere in step 6
    for (int64_t step = 0; step < 6; ++step) {
      const Schedule schedule(options, stopped.task->examples());
      const double rate = 1e-2 * schedule_factor(stopped.optimizer_options, step, schedule.steps());
      train_step(*stopped.task, *stopped.optimizer, stopped.optimizer_options, schedule.step_examples(step), 2, rate,
                 false);
      if (step + 1 == 4) save_checkpoint(folder, *stopped.optimizer, Json{{"step", 4}}, 1);
    }
  }
  TinyRun resumed;
  const auto state = load_checkpoint(folder, *resumed.optimizer);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->at("step").get<int>(), 4);
  run_loop(*resumed.task, *resumed.optimizer, options, resumed.optimizer_options, folder, 4);
  EXPECT_EQ(resumed.weights(), whole.weights());
}

TEST(Checkpoint, ADamagedOneIsPassedOverForTheOneBefore) {
  const fs::path folder = fresh_folder("damaged");
  TinyRun run;
  const std::vector<int64_t> examples{0, 1};
  train_step(*run.task, *run.optimizer, run.optimizer_options, examples, 2, 1e-2, false);
  save_checkpoint(folder, *run.optimizer, Json{{"step", 1}}, 5);
  const auto after_one = run.weights();
  train_step(*run.task, *run.optimizer, run.optimizer_options, examples, 2, 1e-2, false);
  save_checkpoint(folder, *run.optimizer, Json{{"step", 2}}, 5);
  {
    std::fstream file(folder / "checkpoints/step-00000002/tensors.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x7f');
  }
  TinyRun other;
  const auto state = load_checkpoint(folder, *other.optimizer);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->at("step").get<int>(), 1);
  EXPECT_EQ(other.weights(), after_one);
  EXPECT_EQ(other.optimizer->steps(), 1);
}

TEST(Checkpoint, OnlyTheNewestAreKeptAndNoneIsNothing) {
  const fs::path folder = fresh_folder("kept");
  TinyRun run;
  EXPECT_FALSE(load_checkpoint(folder, *run.optimizer).has_value());
  for (int step = 1; step <= 4; ++step) save_checkpoint(folder, *run.optimizer, Json{{"step", step}}, 2);
  EXPECT_FALSE(fs::exists(folder / "checkpoints/step-00000002"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000003"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000004"));
}

TEST(Loop, ALossThatIsNotFiniteStopsWithTheBatchAndLeavesTheWeights) {
  TinyRun run;
  at::Tensor(run.model.transformer.embedding)
      .detach()[0]
      .fill_(std::nan(""));  // byte 0 never occurs, but every row's sum sees its logit
  const auto before = run.weights();
  try {
    train_step(*run.task, *run.optimizer, run.optimizer_options, std::vector<int64_t>{2, 4}, 2, 1e-2, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lines 3 and 5 of pairs.jsonl"));
  }
  EXPECT_EQ(run.weights(), before);
}

TEST(Loop, ABatchWithNothingToCountIsSkipped) {
  TinyRun run;
  PreferenceData data = pairs_of(run.model, 2);
  for (PreferencePair& pair : data.pairs) {
    for (Sequence* s : {&pair.chosen, &pair.rejected}) s->response_begin = static_cast<int64_t>(s->ids.size());
  }
  PreferenceTask task(run.model.transformer, {&run.model.transformer, AdapterUse::off}, *run.method, run.options.get(),
                      std::move(data), PreferenceData{.path = {}, .pairs = {}, .counts = {}}, {});
  const auto before = run.weights();
  const Figures figures =
      train_step(task, *run.optimizer, run.optimizer_options, std::vector<int64_t>{0, 1}, 2, 1e-2, true);
  EXPECT_EQ(figures.at("skipped_pairs").sum, 2);
  EXPECT_EQ(run.weights(), before);
}

TEST(Loop, ALimitThatBindsIsMetOnHeldOutRows) {
  const LoopOptions options{.epochs = 200, .batch_size = 7, .eval_every = 20};
  TinyRun free, limited({"kl<=0.00001", "tv<=0.9"});
  const auto unlimited = run_loop(*free.task, *free.optimizer, options, free.optimizer_options, fresh_folder("free"));
  ASSERT_GT(unlimited.after.at("kl").value, 1e-4);
  const auto held = run_loop(*limited.task, *limited.optimizer, options, limited.optimizer_options,
                             fresh_folder("limited"), 0, {}, update_scale(limited.model.transformer.trainable()));
  EXPECT_NEAR(held.after.at("kl").value, 1e-5, 2.2e-7);
  EXPECT_LT(held.after.at("loss").value, held.before.at("loss").value);
}

TEST(Loop, LimitsAccumulateAsTheBigBatchDoes) {
  TinyRun whole({"kl*0.7", "chi2/sequence*0.2"}), parts({"kl*0.7", "chi2/sequence*0.2"});
  const std::vector<int64_t> examples{0, 1, 2, 3, 4, 5};
  for (int step = 0; step < 2; ++step) {  // at first the policy is the reference and the terms have no gradient
    const Figures a = train_step(*whole.task, *whole.optimizer, whole.optimizer_options, examples, 6, 1e-2, false);
    const Figures b = train_step(*parts.task, *parts.optimizer, parts.optimizer_options, examples, 2, 1e-2, false);
    EXPECT_NEAR(a.at("limit/kl").value(), b.at("limit/kl").value(), 1e-10);
    EXPECT_NEAR(a.at("limit/chi2/sequence").value(), b.at("limit/chi2/sequence").value(), 1e-10);
  }
  const auto first = whole.weights(), second = parts.weights();
  for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], second[i], 1e-9);
}

TEST(Loop, ARunWithLimitsResumesAsOneNeverStopped) {
  const LoopOptions options{.epochs = 3, .batch_size = 2, .eval_every = 2, .save_every = 4, .keep = 3};
  TinyRun whole({"kl<=0.001"});
  const fs::path folder = fresh_folder("limited-whole");
  run_loop(*whole.task, *whole.optimizer, options, whole.optimizer_options, folder);
  TinyRun resumed({"kl<=0.001"});
  fs::remove_all(folder / "checkpoints/step-00000008");
  const auto state = load_checkpoint(folder, *resumed.optimizer);
  ASSERT_TRUE(state.has_value());
  const int64_t step = state->at("step").get<int64_t>();
  run_loop(*resumed.task, *resumed.optimizer, options, resumed.optimizer_options, folder, step, *state);
  EXPECT_EQ(resumed.weights(), whole.weights());
}

TEST(Loop, StopsEarlyAndTakesTheBestWeights) {
  // KL from the reference only grows, so that the first evaluation is the best.
  const LoopOptions options{.epochs = 20, .batch_size = 7, .eval_every = 2, .stop_metric = "kl", .stop_patience = 2};
  TinyRun run;
  const LoopResult result = run_loop(*run.task, *run.optimizer, options, run.optimizer_options, fresh_folder("early"));
  EXPECT_EQ(result.steps, 6);
  EXPECT_EQ(result.best_step, 2);
  EXPECT_FALSE(result.interrupted);
  TinyRun two;
  run_loop(*two.task, *two.optimizer, {.epochs = 20, .max_steps = 20, .batch_size = 7}, two.optimizer_options,
           fresh_folder("two"));
  EXPECT_NE(run.weights(), two.weights());
  TinyRun other;
  try {
    LoopOptions wrong = options;
    wrong.stop_metric = "klo";
    run_loop(*other.task, *other.optimizer, wrong, other.optimizer_options, fresh_folder("wrong"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"kl\""));
  }
}

TEST(Loop, WritesTensorBoardEvents) {
  TinyRun run;
  const fs::path folder = fresh_folder("events");
  run_loop(*run.task, *run.optimizer, {.max_steps = 2, .batch_size = 2}, run.optimizer_options, folder);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "tensorboard")) {
    EXPECT_GT(entry.file_size(), 500u);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(Optimizer, SgdAndLionFollowTheirFormulas) {
  using Rule = OptimizerOptions::Rule;
  const auto moved = [](OptimizerOptions options) {
    at::Tensor x = at::tensor({1.0, -2.0}, at::kDouble).requires_grad_(true);
    Optimizer optimizer({{"x", x}}, options);
    for (const double scale : {1.0, -3.0}) {
      x.mutable_grad() = at::tensor({scale, 0.5}, at::kDouble);
      optimizer.step(0.1);
    }
    return x.detach();
  };
  // Momentum 0.5: first g, then g' + g / 2; weights shrink by 0.1 * 0.2 before each step.
  const at::Tensor sgd = moved({.optimizer = Rule::sgd, .weight_decay = 0.2, .momentum = 0.5});
  EXPECT_NEAR(sgd[0].item<double>(), (1.0 * 0.98 - 0.1) * 0.98 - 0.1 * (-3 + 0.5), 1e-12);
  EXPECT_NEAR(sgd[1].item<double>(), (-2.0 * 0.98 - 0.05) * 0.98 - 0.1 * (0.5 + 0.25), 1e-12);
  // Lion: sign(b1 m + (1 - b1) g), then m moves by 1 - b2: the second step's direction is sign(0.9 * 0.01 - 0.1 * 3).
  const at::Tensor lion = moved({.optimizer = Rule::lion});
  EXPECT_NEAR(lion[0].item<double>(), 1.0 - 0.1 + 0.1, 1e-12);
  EXPECT_NEAR(lion[1].item<double>(), -2.0 - 0.1 - 0.1, 1e-12);
}

TEST(ResponseBatch, RowsPredictExactlyTheResponsesTokens) {
  const Sequence a{.ids = {5, 6, 7, 8}, .response_begin = 2}, b{.ids = {9, 3, 4}, .response_begin = 0},
      c{.ids = {1, 2}, .response_begin = 2};
  const std::vector<const Sequence*> sequences{&a, &b, &c};
  const ResponseBatch batch = response_batch(sequences);
  EXPECT_EQ(batch.counts, (std::vector<int64_t>{2, 2, 0}));
  EXPECT_TRUE(batch.rows.equal(at::tensor({1, 2, 4, 5}, at::kLong)));
  EXPECT_TRUE(batch.labels.equal(at::tensor({7, 8, 3, 4}, at::kLong)));
  const at::Tensor table = padded(at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble), batch.counts);
  EXPECT_TRUE(table.equal(at::tensor({1.0, 2.0, 3.0, 4.0, 0.0, 0.0}, at::kDouble).reshape({3, 2})));
  EXPECT_TRUE(padding_mask(batch.counts).equal(at::tensor({1, 1, 1, 1, 0, 0}).to(at::kBool).reshape({3, 2})));
}

TEST(Figures, BootstrapIntervalsCoverTheMeanAndRepeat) {
  std::vector<Figures> rows;
  for (int i = 0; i < 40; ++i)
    rows.push_back({{"x", {static_cast<double>(i), 1}}, {"rate", {static_cast<double>(i), 10}}});
  const auto a = bootstrap(rows, 1), b = bootstrap(rows, 1);
  EXPECT_DOUBLE_EQ(a.at("x").value, 19.5);
  EXPECT_DOUBLE_EQ(a.at("rate").value, 1.95);
  EXPECT_EQ(a.at("x").low, b.at("x").low);
  // The mean of 40 uniform integers has a standard error of 1.83.
  EXPECT_NEAR(a.at("x").high - a.at("x").low, 2 * 1.96 * 1.83, 1.2);
}

}  // namespace
}  // namespace kullback
