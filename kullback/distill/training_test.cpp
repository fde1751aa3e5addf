// Distillation as the loop runs it, on tiny models.

#include <fstream>
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "kullback/base/error.h"
#include "kullback/distill/kd.h"
#include "kullback/distill/pd.h"
#include "kullback/distill/record.h"
#include "kullback/distill/student_vocabulary.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/make_student.h"
#include "kullback/lm/save.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/train/check.h"
#include "kullback/train/checkpoint.h"
#include "kullback/train/distillation_task.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using ::testing::HasSubstr;

SupervisedData rows_for(const Model& model, int count) {
  SupervisedData data{.path = "rows.jsonl", .examples = {}, .counts = {}};
  for (int i = 0; i < count; ++i) {
    Example example{.line = i + 1, .sequence = {}, .prompt = {{"user", "say " + std::to_string(i)}}, .text = {}};
    example.text = std::string(static_cast<size_t>(i % 4 + 1), 'y');
    example.sequence = encode_response(model, example.prompt, example.text, {});
    data.examples.push_back(std::move(example));
  }
  return data;
}

/// A student of another width and depth, whose head has rows that stand for no token.
Model narrow_student(at::ScalarType type) {
  Model student = test::tiny_model(5, type);
  Config config = student.config();
  config.hidden_size = 16, config.layers = 1, config.heads = 2, config.key_value_heads = 1, config.mlp_size = 24;
  config.vocabulary_size = 264;
  student.transformer = random_transformer(config, 5, 0.3, type);
  return student;
}

struct TinyRun {
  Teacher teacher;
  Model student;
  const Method& method;
  std::shared_ptr<void> options;
  std::unique_ptr<DistillationTask> task;
  std::unique_ptr<Optimizer> optimizer;
  OptimizerOptions rule{.learning_rate = 1e-2};

  explicit TinyRun(const std::string& name, const Json& given = Json::object(), bool lora = false,
                   const std::vector<std::string>& limits = {}, std::optional<Teacher> other = {},
                   std::vector<int32_t> stop_ids = {257})
      : teacher(other ? std::move(*other) : Teacher({test::tiny_model(1, at::kDouble)}, {1})),
        student(narrow_student(at::kDouble)),
        method(find_method(name)),
        options(method.options->defaults()) {
    method.options->assign(options.get(), given, "test");
    if (lora) {
      add_lora(student.transformer, {.rank = 2, .alpha = 4}, 3);
    } else {
      student.transformer.set_trainable(true);
    }
    static std::vector<std::unique_ptr<Transformer>> references;
    references.push_back(std::make_unique<Transformer>(student.transformer.clone()));
    DistillationSetup setup{.stop_ids = std::move(stop_ids),
                            .response_tokens = 6,
                            .seed = 3,
                            .learning_rate = rule.learning_rate,
                            .batch_size = 2,
                            .vocabulary = 258,
                            .student_tokenizer = &student.text()};
    task = std::make_unique<DistillationTask>(
        student.transformer, teacher, Reference{references.back().get(), AdapterUse::on}, method, options.get(),
        rows_for(student, 6), rows_for(student, 3), SupervisedData{}, setup, Limits(LimitOptions{.limit = limits}));
    optimizer = std::make_unique<Optimizer>(student.transformer.trainable(), rule);
  }
};

fs::path empty_folder(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / ("distill-" + name);
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

/// Log-probabilities of the real tokens at each counted token.
Tensor laws(const Transformer& model, const std::vector<const Sequence*>& sequences) {
  const ResponseBatch batch = response_batch(sequences);
  return at::log_softmax(model.logits(response_hidden(model, batch)).narrow(1, 0, 258), -1);
}

struct HooksOptions {
  double scale = 1;
};

/// A recipe of this test's own, with every optional step: a trained tensor, a threshold over the whole step, what it keeps.
const Registered recipe_of_test{
    distillation_method<HooksOptions>("test-hooks")
        .summary("for tests")
        .option("scale", &HooksOptions::scale, positive, "scale")
        .needs([](const HooksOptions&) {
          return DistillationNeeds{.data = true, .of_teacher = true, .of_student = true, .modules_rate = 1e-2};
        })
        .modules([](const DistillationSizes& sizes, const HooksOptions&) {
          return Modules{{"gain", at::ones({sizes.student_width}, at::kDouble)}};
        })
        .responses([](DistillationStep& step, const HooksOptions&) {
          return step.step % 2 == 0
                     ? step.run.data(step.examples)
                     : step.run.draw(ResponseSource::student, step.examples, fmt::format("test {}", step.step),
                                     std::vector<std::vector<int32_t>>(step.examples.size(), {65}));
        })
        .before_step([](DistillationStep& step, const HooksOptions&) {
          double rows = 0;
          step.run.each_batch(step.responses, [&](const DistillationBatch& b) {
            rows += b.mask.sum().item<double>();
            EXPECT_FALSE(b.student.hidden.requires_grad());
            EXPECT_EQ(b.of_teacher.sources[0], ResponseSource::teacher);
          });
          step.state.values["rows"] = rows;
        })
        .loss([](const DistillationBatch& b, const HooksOptions& o) {
          EXPECT_EQ(b.state->values["rows"].get<double>(), b.tokens_in_step);
          EXPECT_TRUE(b.data.defined() && b.of_student.defined());
          const Tensor mixed = b.student.hidden * b.modules.at("gain");
          const Tensor loss = (mixed.mean(1) - 1).square() * b.mask.reshape(-1);
          return DistillationLoss{.value = o.scale * loss.sum() / b.tokens_in_step,
                                  .parts = {{"gain", b.modules.at("gain").detach()}}};
        })
        .after_step([](DistillationStep& step, Figures& figures, const HooksOptions&) {
          if (!step.state.tensors.contains("sum")) step.state.tensors["sum"] = at::zeros({1}, at::kDouble);
          step.state.tensors["sum"] += figures.at("loss").value();
          figures["sum"] = {step.state.tensors["sum"].item<double>(), 1};
        })
        .after_evaluation([](DistillationStep& step, double loss, const HooksOptions&) {
          step.state.values["first loss"] = step.state.values.value("first loss", loss);
        })};

TEST(DistillationTask, WhatAMethodKeepsAndTrainsBesideTheStudentIsResumedToo) {
  const LoopOptions loop{.epochs = 4, .batch_size = 2, .accumulation = 2, .save_every = 3};
  const fs::path folder = empty_folder("hooks"), other = empty_folder("hooks-whole");
  TinyRun whole("test-hooks"), begun("test-hooks"), resumed("test-hooks");
  const std::vector<int64_t> all{0, 1, 2, 3, 4, 5};
  for (TinyRun* run : {&whole, &begun, &resumed}) run->task->prepare({}, all, 6, [](int64_t, int64_t) {});
  run_loop(*whole.task, *whole.optimizer, loop, whole.rule, other);
  run_loop(*begun.task, *begun.optimizer, loop, begun.rule, folder);
  const auto state = load_checkpoint(folder, *resumed.optimizer);
  ASSERT_TRUE(state);
  run_loop(*resumed.task, *resumed.optimizer, loop, resumed.rule, folder, state->at("step").get<int64_t>(), *state);
  const auto a = whole.task->kept(), b = resumed.task->kept();
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.size(), 4U);  // the sum, the gain and its two moments
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].tensor, b[i].tensor)) << a[i].name;
  EXPECT_FALSE(at::equal(a[1].tensor, at::ones_like(a[1].tensor)));
  EXPECT_EQ(whole.task->state().at("values"), resumed.task->state().at("values"));
}

TEST(DistillationTask, TheLossIsTheMeanDivergenceOverRealTokens) {
  const TinyRun run("kd");
  const std::vector<int64_t> step{0, 1, 2};
  const SupervisedData data = rows_for(run.student, 3);
  std::vector<const Sequence*> sequences;
  for (const Example& example : data.examples) sequences.push_back(&example.sequence);
  double expected = 0;
  {
    const at::NoGradGuard no_grad;
    const Tensor p = laws(run.teacher.model().transformer, sequences), q = laws(run.student.transformer, sequences);
    expected = (p.exp() * (p - q)).sum(1).mean().item<double>();
  }
  const Figures figures = run.task->accumulate(step, step, true);
  EXPECT_NEAR(figures.at("loss").value(), expected, 1e-10);
  EXPECT_NEAR(figures.at("forward_kl").value(), expected, 1e-10);
  const Tensor gradient = run.student.transformer.embedding.grad();
  EXPECT_GT(gradient.narrow(0, 0, 258).abs().sum().item<double>(), 0);
  EXPECT_EQ(gradient.narrow(0, 258, 6).abs().sum().item<double>(), 0);  // no token reads or predicts them
}

TEST(DistillationTask, AccumulatedBatchesMakeTheSameStepAsTheBigBatch) {
  const std::vector<int64_t> step{0, 1, 2, 3, 4, 5};
  const std::vector<std::pair<std::string, Json>> methods{
      {"kd", {{"kd_ratio", 0.7}, {"temperature", 2}, {"reduction", "sequence_mean"}}},
      {"kd", {{"source", "student"}}},
      {"kd", {{"source", "teacher"}, {"beams", 1}}},
      {"pd", {{"k", 7}, {"alpha_schedule", "constant"}}}};
  for (const auto& [name, options] : methods) {
    TinyRun whole(name, options, true, {"kl*0.5"}), parts(name, options, true, {"kl*0.5"});
    for (int i = 0; i < 2; ++i) {
      for (TinyRun* run : {&whole, &parts}) run->task->before_step(i, 2, step);
      Figures a = train_step(*whole.task, *whole.optimizer, whole.rule, step, 6, 1e-2, true);
      Figures b = train_step(*parts.task, *parts.optimizer, parts.rule, step, 2, 1e-2, true);
      for (const char* figure : {"loss", "limit/kl", "forward_kl", "backward_kl", "teacher_tv", "js", "grad_norm"})
        EXPECT_NEAR(a.at(figure).value(), b.at(figure).value(), 1e-9) << name << " " << figure;
      whole.task->after_step(i + 1, 2, a), parts.task->after_step(i + 1, 2, b);
    }
  }
}

TEST(DistillationTask, AMeanOverSpansIsOneOverTheStep) {
  std::vector<int32_t> stop_ids(60);  // so that responses differ in length
  std::iota(stop_ids.begin(), stop_ids.end(), 0);
  const std::vector<int64_t> step{0, 1, 2, 3, 4, 5};
  for (const Json& spans : {Json{{"spans", "windows"}, {"span_length", 2}}, Json{{"spans", "phrases"}}}) {
    Json options{{"w_sft", 0}, {"w_dac", 0}, {"corrections", 0}};
    options.update(spans);
    TinyRun whole("dac-kl", options, false, {}, {}, stop_ids), parts("dac-kl", options, false, {}, {}, stop_ids);
    const auto gradient = [&](const TinyRun& run, size_t batch, Figures& figures) {
      for (size_t first = 0; first < step.size(); first += batch)
        add(figures, run.task->accumulate(std::span(step).subspan(first, batch), step, false));
      return run.student.transformer.embedding.grad();
    };
    Figures a, b;
    const Tensor of_whole = gradient(whole, 6, a), of_parts = gradient(parts, 3, b);
    EXPECT_GT(a.at("loss").value(), 0);
    EXPECT_NEAR(a.at("loss").value(), b.at("loss").value(), 1e-12) << spans;
    EXPECT_GT(of_whole.abs().max().item<double>(), 1e-9);
    EXPECT_LT((of_whole - of_parts).abs().max().item<double>(), 1e-12) << spans;
  }
}

TEST(DistillationTask, DrawsTheStudentNearTheTeacher) {
  for (const Json& options : {Json::object(), Json{{"source", "student"}, {"divergence", "reverse_kl"}}}) {
    TinyRun run("kd", options);
    const LoopOptions loop{.epochs = 60, .batch_size = 6};
    const LoopResult result =
        run_loop(*run.task, *run.optimizer, loop, run.rule, empty_folder("near" + options.dump().substr(0, 4)));
    for (const char* figure : {"forward_kl", "backward_kl", "teacher_tv", "js"})
      EXPECT_LT(result.after.at(figure).value, 0.6 * result.before.at(figure).value) << figure;
    EXPECT_EQ(run.task->sampling_seconds() > 0, options.contains("source"));
    const Interval error = run.task->held_out().calibration_error(1);
    EXPECT_TRUE(error.low <= error.value && error.value <= error.high && error.low >= 0 && error.high <= 1);
    EXPECT_EQ(run.task->held_out().plots(1).size(), 3U);
  }
}

TEST(DistillationTask, AResumedRunIsTheSameBitForBit) {
  const LoopOptions loop{.epochs = 4, .batch_size = 2, .accumulation = 2, .save_every = 3};
  for (const Json& options : {Json{{"source", "student"}}, Json{{"source", "teacher"}, {"beams", 2}}}) {
    const fs::path folder = empty_folder("resumed"), other = empty_folder("whole");
    TinyRun whole("kd", options), begun("kd", options), resumed("kd", options);
    run_loop(*whole.task, *whole.optimizer, loop, whole.rule, other);
    run_loop(*begun.task, *begun.optimizer, loop, begun.rule, folder);
    const auto state = load_checkpoint(folder, *resumed.optimizer);
    ASSERT_TRUE(state);
    ASSERT_LT(state->at("step").get<int64_t>(), 6);
    run_loop(*resumed.task, *resumed.optimizer, loop, resumed.rule, folder, state->at("step").get<int64_t>(), *state);
    for (size_t i = 0; i < whole.optimizer->parameters().size(); ++i)
      EXPECT_TRUE(at::equal(whole.optimizer->parameters()[i].tensor, resumed.optimizer->parameters()[i].tensor));
  }
}

TEST(Teacher, SeveralTeachByTheMixtureOfTheirProbabilities) {
  const Teacher both({test::tiny_model(1, at::kDouble), test::tiny_model(2, at::kDouble)}, {0.25, 0.75});
  const SupervisedData data = rows_for(both.models()[0], 2);
  const std::vector<const Sequence*> sequences{&data.examples[0].sequence, &data.examples[1].sequence};
  const at::NoGradGuard no_grad;
  const Tensor p = 0.25 * laws(both.models()[0].transformer, sequences).exp() +
                   0.75 * laws(both.models()[1].transformer, sequences).exp();
  const ResponseBatch batch = response_batch(sequences);
  const Rows rows = both.rows(batch, {1, 2}, 258, at::kDouble);
  EXPECT_LT((label_logps(rows, batch.labels) - p.gather(1, batch.labels.unsqueeze(1)).squeeze(1).log())
                .abs()
                .max()
                .item<double>(),
            1e-12);
  EXPECT_THROW(both.model(), Error);
}

TEST(Teacher, WhatWasRecordedStandsInForIt) {
  const fs::path folder = empty_folder("record");
  const Model model = test::tiny_model(1);
  save_model(model, folder / "teacher");
  std::string text;
  for (int i = 0; i < 6; ++i)
    text += fmt::format("{{\"prompt\": \"say {}\", \"completion\": \"{}\"}}\n", i,
                        std::string(static_cast<size_t>(i % 4 + 1), 'y'));
  std::ofstream(folder / "rows.jsonl") << text;
  const DataOptions options{.data = (folder / "rows.jsonl").string()};
  const RecordOptions wanted{.teacher = (folder / "teacher").string(),
                             .output = (folder / "rows.teacher").string(),
                             .p = 1,
                             .k = 258,
                             .rows_per_block = 5};
  const RecordResult result = record_teacher(wanted, options, [](int64_t, int64_t) {});
  EXPECT_LT(result.decoding_kl, store_bounds(result.format, 1).kl);
  EXPECT_LT(result.decoding_logp, store_bounds(result.format, 1).log_probability);
  EXPECT_LT(result.truncation_kl, 1e-6);

  const SupervisedData data = load_supervised(options.data, model, options);
  const Teacher recorded(recorded_rows(wanted.output, data, model.text()));
  std::vector<const Sequence*> sequences;
  std::vector<int64_t> lines;
  for (const size_t i : {4U, 1U})
    sequences.push_back(&data.examples[i].sequence), lines.push_back(data.examples[i].line);
  const ResponseBatch batch = response_batch(sequences);
  const at::NoGradGuard no_grad;
  const Tensor whole = laws(model.transformer, sequences).gather(1, batch.labels.unsqueeze(1)).squeeze(1);
  EXPECT_LT(
      (label_logps(recorded.rows(batch, lines, 258, at::kFloat), batch.labels) - whole).abs().max().item<double>(),
      1e-3);

  const SupervisedData others = load_supervised(options.data, model, {.data = options.data, .max_rows = 5});
  EXPECT_THROW(recorded_rows(wanted.output, others, model.text()), Error);
  // Methods that ask the teacher elsewhere say so.
  try {
    const TinyRun run("kd", {{"source", "student"}}, false, {}, recorded);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--teacher-record"));
  }
}

TEST(MakeStudent, KeepsTheNamedLayers) {
  using Layers = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(student_layers("every-2", 5), (Layers{{0}, {2}, {4}}));
  EXPECT_EQ(student_layers("0,3", 5), (Layers{{0}, {3}}));
  EXPECT_EQ(student_layers("mean-2", 5), (Layers{{0, 1}, {2, 3}, {4}}));
  for (const char* bad : {"0,5", "every-0", "mean-0", "every", "", "1,,2", "-1", "1,1"})
    EXPECT_THROW(student_layers(bad, 5), Error) << bad;
  const Model teacher = test::tiny_model(1);
  const Model student = make_student(teacher, {.layers = {{1}}});
  EXPECT_EQ(student.config().layers, 1);
  EXPECT_TRUE(at::equal(student.transformer.layers[0].query.weight, teacher.transformer.layers[1].query.weight));
  EXPECT_NE(student.transformer.embedding.data_ptr(), teacher.transformer.embedding.data_ptr());
}

TEST(MakeStudent, CutsToAWidthAndTakesMeansOfLayers) {
  const Model teacher = test::tiny_model(1);
  const Config& whole = teacher.config();
  ASSERT_EQ(whole.key_value_heads % 2, 0);
  const Model student = make_student(teacher, {.layers = {{0, 1}}, .width = whole.hidden_size / 2});
  EXPECT_EQ(student.config().heads, whole.heads / 2);
  EXPECT_EQ(student.config().mlp_size, whole.mlp_size / 2);
  const Tensor mean = (teacher.transformer.layers[0].down.weight + teacher.transformer.layers[1].down.weight) / 2;
  EXPECT_TRUE(at::allclose(student.transformer.layers[0].down.weight,
                           mean.narrow(0, 0, whole.hidden_size / 2).narrow(1, 0, whole.mlp_size / 2)));
  EXPECT_TRUE(
      at::equal(student.transformer.embedding, teacher.transformer.embedding.narrow(1, 0, whole.hidden_size / 2)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::isfinite(student.transformer.hidden(ragged({{1, 2, 3}}))).all().item<bool>());
  EXPECT_THROW(make_student(teacher, {.layers = {{0}}, .width = 1}), Error);
  EXPECT_THROW(make_student(teacher, {.layers = {{0}}, .width = 2 * whole.hidden_size}), Error);
}

TEST(MakeStudent, TakesAVocabularyOfItsOwn) {
  const Model teacher = test::tiny_model(1);
  Model student = make_student(teacher, {.layers = {{0}}});
  const Tokenizer bytes(byte_level_spec("bytes", {}, {}));
  take_vocabulary(student, bytes, 3);
  EXPECT_EQ(student.transformer.embedding.size(0), bytes.vocabulary_size());
  // A byte's row is the mean of those of all tokens that it is part of.
  const int32_t piece = bytes.encode("e", false)[0];
  Tensor sum = at::zeros({teacher.config().hidden_size});
  int64_t uses = 0;
  for (int32_t token = 0; token < teacher.text().vocabulary_size(); ++token) {
    if (teacher.text().is_special(token) || teacher.text().token_bytes(token).find('e') == std::string::npos) continue;
    sum += teacher.transformer.embedding[token], ++uses;
  }
  ASSERT_GT(uses, 0);
  EXPECT_TRUE(at::allclose(student.transformer.embedding[piece], sum / uses, 1e-5, 1e-6));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(student.transformer.logits(student.transformer.hidden(ragged({{1, 2}}))).size(1), bytes.vocabulary_size());
}

TEST(Pd, TheStoreAndTheLiveTeacherTrainAlike) {
  Rows student, teacher;
  student.hidden = at::randn({6, 20}, at::kDouble);
  teacher.hidden = 3 * at::randn({6, 20}, at::kDouble);
  const Tensor labels = at::arange(6, at::kLong).unsqueeze(0), mask = at::ones({1, 6}, at::kBool);
  const PdTarget live = pd_truncate(teacher, 0.95, 5);
  PdTarget stored = live;
  stored.logps = live.logps.clone();
  const TeacherStoreFormat format{.vocabulary = 20, .k = 5};
  const std::vector<TeacherRow> rows = pd_rows(live);
  for (int64_t n = 0; n < 6; ++n) {
    const TeacherRow row = stored_row(rows[static_cast<size_t>(n)], format);
    for (size_t i = 0; i < row.logps.size(); ++i) stored.logps[n][static_cast<int64_t>(i)] = row.logps[i];
  }
  const double a = pd_loss(student, live, labels, mask, 0.9, {}).loss.item<double>();
  const double b = pd_loss(student, stored, labels, mask, 0.9, {}).loss.item<double>();
  EXPECT_NE(a, b);
  EXPECT_NEAR(a, b, 2e-3);
}

TEST(Pd, GoldenFixture) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES) + "/pd.json");
  for (const CheckResult& r : report.results)
    EXPECT_TRUE(r.passed) << r.name << ": " << r.largest_difference << " at " << r.at;
  EXPECT_EQ(report.results.size(), 22u);
}

}  // namespace
}  // namespace kullback
