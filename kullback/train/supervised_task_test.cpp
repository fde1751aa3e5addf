#include "kullback/train/supervised_task.h"

#include <fstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "kullback/base/error.h"
#include "kullback/lm/lora.h"
#include "kullback/train/tiny_model_test.h"
#include "kullback/train/weight_average.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path rows(const std::string& name, const std::string& text) {
  const fs::path file = fs::path(::testing::TempDir()) / (name + ".jsonl");
  std::ofstream(file) << text;
  return file;
}

SupervisedData examples(const Model& model, int count) {
  SupervisedData data{.path = "rows.jsonl", .examples = {}, .counts = {}};
  for (int i = 0; i < count; ++i) {
    Example example{
        .line = i + 1, .sequence = {}, .weight = i == 1 ? 3.0 : 1.0, .prompt = {{"user", "say"}}, .text = {}};
    example.sequence = encode_response(model, example.prompt, std::string(static_cast<size_t>(i + 1), 'y'), {});
    data.examples.push_back(std::move(example));
  }
  return data;
}

struct TinyRun {
  Model model = test::tiny_model(1, at::kDouble);
  OptimizerOptions options{.learning_rate = 1e-2};
  std::unique_ptr<SupervisedTask> task;
  std::unique_ptr<Optimizer> optimizer;

  explicit TinyRun(const std::vector<std::string>& limits = {}) {
    add_lora(model.transformer, {.rank = 2, .alpha = 4}, 3);
    task =
        std::make_unique<SupervisedTask>(model.transformer, Reference{&model.transformer, AdapterUse::off},
                                         examples(model, 6), examples(model, 3), Limits(LimitOptions{.limit = limits}));
    optimizer = std::make_unique<Optimizer>(model.transformer.trainable(), options);
  }
};

TEST(SupervisedTask, TheLossIsTheWeightedMeanOverTheStepsTokens) {
  const TinyRun run;
  const at::NoGradGuard no_grad;
  const SupervisedData data = examples(run.model, 3);
  double sum = 0, count = 0;
  for (const Example& example : data.examples) {
    const at::Tensor logits =
        run.model.transformer.logits(run.model.transformer.hidden(ragged({example.sequence.ids})));
    const at::Tensor logps = at::log_softmax(logits, -1);
    for (size_t t = static_cast<size_t>(example.sequence.response_begin); t < example.sequence.ids.size(); ++t) {
      sum -= example.weight * logps[static_cast<int64_t>(t) - 1][example.sequence.ids[t]].item<double>();
      count += example.weight;
    }
  }
  const at::AutoGradMode grad(true);
  const std::vector<int64_t> step{0, 1, 2};
  const Figures figures = run.task->accumulate(step, step, false);
  EXPECT_NEAR(figures.at("loss").value(), sum / count, 1e-10);
}

TEST(SupervisedTask, AccumulatedBatchesMakeTheSameStepAsTheBigBatch) {
  TinyRun whole({"kl*0.5", "js/sequence*0.1"}), parts({"kl*0.5", "js/sequence*0.1"});
  const std::vector<int64_t> step{0, 1, 2, 3, 4, 5};
  for (int i = 0; i < 2; ++i) {
    const Figures a = train_step(*whole.task, *whole.optimizer, whole.options, step, 6, 1e-2, true);
    const Figures b = train_step(*parts.task, *parts.optimizer, parts.options, step, 2, 1e-2, true);
    for (const char* name : {"loss", "limit/kl", "limit/js/sequence", "kl", "grad_norm"}) {
      EXPECT_NEAR(a.at(name).value(), b.at(name).value(), 1e-9) << name;
    }
  }
}

TEST(SupervisedTask, LearnsItsRowsAndALimitHoldsItBack) {
  const LoopOptions options{.epochs = 120, .batch_size = 6, .eval_every = 15};
  const auto folder = [](const char* name) {
    const fs::path path = fs::path(::testing::TempDir()) / name;
    fs::remove_all(path);
    fs::create_directories(path);
    return path;
  };
  TinyRun free, near({"kl<=0.05"});
  const LoopResult moved = run_loop(*free.task, *free.optimizer, options, free.options, folder("sft-free"));
  const LoopResult held = run_loop(*near.task, *near.optimizer, options, near.options, folder("sft-near"), 0, {},
                                   update_scale(near.model.transformer.trainable()));
  EXPECT_LT(moved.after.at("loss").value, 0.5 * moved.before.at("loss").value);
  EXPECT_GT(moved.after.at("top_1").value, moved.before.at("top_1").value);
  ASSERT_GT(moved.after.at("kl").value, 0.5);
  EXPECT_NEAR(held.after.at("kl").value, 0.05, 0.0011);
  EXPECT_LT(held.after.at("loss").value, held.before.at("loss").value);
}

TEST(SupervisedData, EveryKindOfRowIsRead) {
  const Model model = test::tiny_model();
  const SupervisedData data = load_supervised(
      rows("kinds", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"prompt": "a", "completion": "b", "weight": 2}
{"text": "plain words"}
)"),
      model, {});
  ASSERT_EQ(data.examples.size(), 3U);
  EXPECT_EQ(data.examples[0].sequence.ids, data.examples[1].sequence.ids);
  EXPECT_EQ(data.examples[1].weight, 2);
  EXPECT_EQ(data.examples[2].sequence.ids.front(), 256);  // the beginning, which predicts the first byte
  EXPECT_EQ(data.examples[2].sequence.ids.back(), 257);
  EXPECT_EQ(data.examples[2].sequence.counted(), 12);
}

TEST(SupervisedData, RowsThatCannotBeUsedAreRefusedWithTheirLine) {
  const Model model = test::tiny_model();
  const auto refused = [&](const std::string& row) -> std::string {
    try {
      load_supervised(rows("bad", R"({"text": "fine"})"
                                  "\n" +
                                      row + "\n"),
                      model, {.max_length = 64});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused(R"({"prompt": "a"})"), HasSubstr("line 2: no column \"completion\""));
  EXPECT_THAT(refused(R"({"prompt": "a", "completion": ""})"),
              HasSubstr("line 2: the answer in \"completion\" is empty"));
  EXPECT_THAT(refused(R"({"messages": [{"role": "user", "content": "a"}]})"), HasSubstr("must end in one answer"));
  EXPECT_THAT(refused(R"({"messages": []})"), HasSubstr("line 2: \"messages\" is empty"));
  EXPECT_THAT(refused(R"({"messages": [{"role": "assistant", "content": "a"}]})"),
              HasSubstr("no message comes before"));
  EXPECT_THAT(refused(R"({"text": 3})"), HasSubstr("line 2: \"text\""));
  EXPECT_THAT(refused(R"({"text": "x", "weight": -1})"), HasSubstr("\"weight\""));
  EXPECT_THAT(refused(R"({"prompt": ")" + std::string(80, 'x') + R"(", "completion": "b"})"),
              HasSubstr("--max-length 64"));
}

}  // namespace
}  // namespace kullback
