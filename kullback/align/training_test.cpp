// The methods under the real trainer, on a tiny model: what they need beyond log-probabilities is there and is right.
#include <fstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/align/gradient_diagnosis.h"
#include "kullback/align/kto.h"
#include "kullback/align/preference_batch_test.h"
#include "kullback/align/tr_dpo.h"
#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/save.h"
#include "kullback/train/preference_task.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback {
namespace {

using at::Tensor;

PreferenceData data_of(const Model& model, const std::string& text) {
  static int number = 0;
  const auto path = std::filesystem::path(::testing::TempDir()) / fmt::format("align-{}.jsonl", ++number);
  std::ofstream(path) << text;
  return load_preferences(path, model, {});
}

const std::string pairs = R"({"prompt": "Hi", "chosen": "Hello there, friend.", "rejected": "No."}
{"prompt": "Two?", "chosen": "2", "rejected": "It is three, I think."}
{"prompt": "A word", "chosen": "Sun", "rejected": "Well"}
{"prompt": "Bye", "chosen": "Good bye!", "rejected": "Stay."}
)";
const std::string labelled = R"({"prompt": "Hi", "completion": "Hello there.", "label": true}
{"prompt": "Two?", "completion": "Three", "label": false}
{"prompt": "Bye", "completion": "Good bye!", "label": true}
)";

struct TinyRun {
  Model model = test::tiny_model(1, at::kDouble);
  const Method& method;
  std::shared_ptr<void> options;
  OptimizerOptions settings{.learning_rate = 1e-2, .warmup = 0};
  std::unique_ptr<PreferenceTask> task;
  std::unique_ptr<Optimizer> optimizer;

  TinyRun(const std::string& name, const Json& given, const std::string& text) : method(find_method(name)) {
    options = method.options->defaults();
    method.options->assign(options.get(), given, "test");
    add_lora(model.transformer, {.rank = 2, .alpha = 4}, 3);
    task = std::make_unique<PreferenceTask>(
        model.transformer, Reference{&model.transformer, AdapterUse::off}, method, options.get(), data_of(model, text),
        PreferenceData{.path = {}, .pairs = {}, .counts = {}}, std::vector<int32_t>{});
    optimizer = std::make_unique<Optimizer>(model.transformer.trainable(), settings);
  }
  Figures step(std::vector<int64_t> examples, int64_t number, int64_t batch = 4) {
    Figures figures = train_step(*task, *optimizer, settings, examples, batch, 1e-2, false);
    task->after_step(number, 10, figures);
    return figures;
  }
};

TEST(MethodsInTraining, EachTakesStepsFromTheCommandsOwnOptions) {
  for (const auto& [name, given] :
       {std::pair<const char*, Json>{"f-dpo", {{"divergence", "jsd"}}},
        {"tdpo", Json::object()},
        {"sampo", {{"mode", "independent"}}},
        {"ln-dpo", {{"variant", "simpo"}}},
        {"h-dpo", Json::object()},
        {"cpl", {{"bc-coeff", 1.0}}},
        {"d2o", Json::object()},
        {"dpo-kernels", {{"embedding", "policy"}, {"kernel", "hmk"}, {"link", "logsigmoid"}}},
        {"kto", Json::object()},
        {"tr-dpo", {{"mode", "hard"}, {"sync-steps", 2}}}}) {
    SCOPED_TRACE(name);
    TinyRun run(name, given, pairs);
    double last = 0;
    for (int64_t step = 1; step <= 3; ++step) last = run.step({0, 1, 2, 3}, step).at("loss").value();
    EXPECT_TRUE(std::isfinite(last));
  }
}

/// A sparse autoencoder of a tiny model's states, random.
std::string tiny_autoencoder() {
  const Tensor encoder = at::randn({32, 12}), bias = at::zeros({12}), threshold = at::full({12}, 0.01);
  const auto path = std::filesystem::path(::testing::TempDir()) / "autoencoder.safetensors";
  std::vector<TensorBytes> tensors;
  for (const auto& [name, t] : {std::pair{"W_enc", &encoder}, {"b_enc", &bias}, {"threshold", &threshold}}) {
    const auto* bytes = static_cast<const std::byte*>(t->const_data_ptr());
    tensors.push_back({name, stored_dtype(*t), t->sizes().vec(), {bytes, t->nbytes()}});
  }
  write_safetensors(path, tensors);
  return path.string();
}

TEST(MethodsInTraining, FeaturesAreReadAfterTheBlockThatIsAskedFor) {
  at::manual_seed(5);
  const std::string file = tiny_autoencoder();
  const auto run = [&](int64_t layer) {
    TinyRun r("fpo", {{"autoencoder", file}, {"layer", layer}, {"k", 3}, {"alpha", 20.0}}, pairs);
    EXPECT_NEAR(r.step({0, 1, 2, 3}, 1).at("loss").value(), std::log(2), 1e-12);
    return r.step({0, 1, 2, 3}, 2).at("loss").value();
  };
  const double last = run(0), first = run(1), second = run(2);
  EXPECT_NE(first, second);
  EXPECT_NE(second, last);  // the final norm lies between
  EXPECT_THAT([&] { run(3); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("option --layer: there is no block 3 in a model of 2")));
}

TEST(MethodsInTraining, DrawnTokensAreThoseOfTheStepHoweverItIsCut) {
  const auto loss = [](std::vector<int64_t> order, int64_t batch) {
    TinyRun run("sampo", Json::object(), pairs);
    run.step({0, 1, 2, 3}, 1);
    return run.step(std::move(order), 2, batch).at("loss").value();
  };
  EXPECT_NEAR(loss({3, 1, 0, 2}, 4), loss({3, 1, 0, 2}, 1), 1e-12);
  EXPECT_NE(loss({3, 1, 0, 2}, 4), loss({0, 1, 2, 3}, 4));  // another visit draws anew
}

TEST(MethodsInTraining, AHardUpdateMakesThePolicyTheReference) {
  TinyRun run("tr-dpo", {{"mode", "hard"}, {"sync-steps", 2}}, pairs);
  EXPECT_NEAR(run.step({0, 1, 2, 3}, 1).at("loss").value(), std::log(2), 1e-12);
  EXPECT_LT(run.step({0, 1, 2, 3}, 2).at("loss").value(), std::log(2));
  EXPECT_NEAR(run.step({0, 1, 2, 3}, 3).at("loss").value(), std::log(2), 1e-12);
  EXPECT_LT(run.step({0, 1, 2, 3}, 4).at("loss").value(), std::log(2));
}

TEST(MethodsInTraining, ASoftReferenceIsTheMeanOfWholeWeightsNotOfAdapters) {
  TinyRun run("tr-dpo", {{"mode", "soft"}, {"alpha", 0.25}, {"sync-steps", 1}}, pairs);
  const auto moved = [&] {
    for (const NamedTensor& t : run.task->kept()) {
      if (t.name.find("layers.0.self_attn.q_proj") != std::string::npos) return t.tensor;
    }
    throw std::logic_error("no such tensor");
  };
  const auto policy = [&] {
    Transformer whole = run.model.transformer.clone();
    merge_lora(whole);
    return whole.layers[0].query.weight;
  };
  at::Tensor expected = moved().clone();
  EXPECT_TRUE(expected.equal(run.model.transformer.layers[0].query.weight));
  for (int64_t step = 1; step <= 3; ++step) {
    run.step({0, 1, 2, 3}, step);
    expected = 0.25 * policy() + 0.75 * expected;
    EXPECT_TRUE(at::allclose(moved(), expected, 1e-12, 1e-14)) << step;
  }
  EXPECT_FALSE(at::allclose(moved(), policy(), 1e-6, 1e-8));
}

TEST(MethodsInTraining, AStepDoesToAPairWhatItsGradientsSay) {
  Model model = test::tiny_model(1, at::kDouble);
  const Model reference = test::tiny_model(2, at::kDouble);
  model.transformer.set_trainable(true);
  for (const char* name : {"dpo", "sampo", "kto"}) {
    const Method& method = find_method(name);
    const auto options = method.options->defaults();
    PreferenceTask task(model.transformer, Reference{&reference.transformer, AdapterUse::on}, method, options.get(),
                        data_of(model, pairs), data_of(model, pairs), {});
    std::vector<Tensor> weights;
    for (const NamedTensor& one : model.transformer.trainable()) weights.push_back(one.tensor);
    const PreferencePair& pair = task.held_out()[1];
    const StepEffect effect = step_effect(model.transformer, pair, task.held_out_loss(1), weights);
    EXPECT_LE(std::abs(effect.cosine), 1) << name;
    EXPECT_GE(std::abs(effect.condition), std::abs(effect.cosine)) << name;

    const std::vector<Tensor> direction = torch::autograd::grad({task.held_out_loss(1)}, weights);
    const auto logp_at = [&](const Sequence& sequence, double step) {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < weights.size(); ++i) weights[i].sub_(direction[i], step);
      const ResponseBatch batch = response_batch(std::vector<const Sequence*>{&sequence});
      const Transformer& t = model.transformer;
      const double sum = label_logps(t.head_rows(response_hidden(t, batch)), batch.labels).sum().item<double>();
      for (size_t i = 0; i < weights.size(); ++i) weights[i].add_(direction[i], step);
      return sum;
    };
    constexpr double step = 1e-5;
    for (const auto& [sequence, said] : {std::pair{&pair.chosen, effect.chosen}, {&pair.rejected, effect.rejected}}) {
      const double change = (logp_at(*sequence, step) - logp_at(*sequence, -step)) / (2 * step);
      EXPECT_NEAR(change, said, 1e-4 * std::max(1.0, std::abs(said))) << name;
    }
  }
}

TEST(MethodsInTraining, KtoTakesSingleLabelledResponsesAndOthersRefuseThem) {
  TinyRun run("kto", {{"undesirable-weight", 1.5}}, labelled);
  // At the reference every value is 1/2 and z0 is 0.
  EXPECT_NEAR(run.step({0, 1, 2}, 1).at("loss").value(), (0.5 + 0.75 + 0.5) / 3, 1e-12);
  EXPECT_LT(run.step({0, 1, 2}, 2).at("loss").value(), (0.5 + 0.75 + 0.5) / 3);
  EXPECT_THROW(TinyRun("dpo", Json::object(), labelled), Error);
}

TEST(Kto, SingleResponsesAreRowsOfTheirOwn) {
  PreferenceBatch batch = random_pairs(2, 3, 8);
  batch.chosen_present = at::tensor({1, 0}).to(at::kBool);
  batch.rejected_present = at::tensor({0, 1}).to(at::kBool);
  const KtoRows rows{
      .responses = {.logps = at::stack({batch.chosen.logps[0], batch.rejected.logps[1]}),
                    .reference_logps = at::stack({batch.chosen.reference_logps[0], batch.rejected.reference_logps[1]}),
                    .mask = at::stack({batch.chosen.mask[0], batch.rejected.mask[1]}),
                    .divergences = {}},
      .desirable = at::tensor({1, 0}).to(at::kBool),
      .mismatched = batch.mismatched,
      .weight = {}};
  EXPECT_NEAR(kto_loss(batch, {}).value.item<double>(), kto_rows_loss(rows, {}).losses.mean().item<double>(), 1e-15);
}

}  // namespace
}  // namespace kullback
