// Tiny checkpoints as transformers wrote them, and what it makes of them (fixtures/architectures): logits, loss, the
// norm of each gradient, greedy tokens, padded batches, shards, 16-bit files, rotary scalings and an adapter.
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/json.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"
#include "kullback/lm/score.h"

namespace kullback {
namespace {

std::string folder(const std::string& name) { return KULLBACK_FIXTURES "/architectures/" + name; }

Json golden_of(const std::string& name) {
  std::ifstream file(folder(name) + "/golden.json");
  return Json::parse(file);
}

Model model_of(const std::string& name, const Json& golden) {
  if (!golden.contains("base")) {
    Model model = load_model(folder(name));
    model.transformer.set_trainable(true);
    return model;
  }
  Model model = load_model(folder(name) + "/" + golden["base"].get<std::string>());
  load_adapter(model.transformer, folder(name));
  return model;
}

using Sequences = std::vector<std::vector<int32_t>>;

// The tokens that a mask says are real. There is no padding here, so a padded batch is only another way to say the
// same.
Sequences unpadded(const Json& ids, const Json& mask) {
  Sequences sequences;
  for (size_t row = 0; row < ids.size(); ++row) {
    sequences.emplace_back();
    for (size_t t = 0; t < ids[row].size(); ++t) {
      if (mask.is_null() || mask[row][t] == 1) sequences.back().push_back(ids[row][t]);
    }
  }
  return sequences;
}

// Golden logits of the real positions. [N, V]
at::Tensor expected_logits(const Json& golden) {
  std::vector<double> data;
  for (const Json& value : golden["logits"]["data"]) {
    if (!value.is_null()) data.push_back(value);
  }
  return at::tensor(data, at::kDouble).view({-1, golden["logits"]["shape"][2].get<int64_t>()});
}

void expect_close(const at::Tensor& ours, const at::Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(ours.sizes(), expected.sizes()) << what;
  EXPECT_LE(((ours.to(at::kDouble) - expected).abs() / expected.abs().clamp_min(1)).max().item<double>(), tolerance)
      << what;
}

// Logits, loss and gradient norms of one batch.
void check_batch(Model& model, const Json& golden, double tolerance, const std::string& what) {
  const Ragged batch = ragged(unpadded(golden["input_ids"], golden.value("attention_mask", Json())));
  const at::Tensor logits = model.transformer.logits(model.transformer.hidden(batch));
  expect_close(logits, expected_logits(golden), tolerance, what);
  const at::Tensor labels = next_tokens(batch);
  const at::Tensor logps = at::log_softmax(logits, -1).gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
  const at::Tensor loss = -logps.masked_select(labels.ge(0)).mean();
  const double expected_loss = golden["loss"];
  EXPECT_NEAR(loss.item<double>(), expected_loss, tolerance * std::max(1.0, expected_loss)) << what;

  torch::autograd::backward({loss}, {});
  const std::vector<NamedTensor> trainable = model.transformer.trainable();
  EXPECT_EQ(trainable.size(), golden["grad_norms"].size()) << what;
  for (const NamedTensor& named : trainable) {
    const double norm = golden["grad_norms"].at(named.name);
    EXPECT_NEAR(named.tensor.grad().norm().item<double>(), norm, tolerance * std::max(1.0, norm))
        << what << ": " << named.name;
    named.tensor.mutable_grad() = at::Tensor();
  }
}

class Architecture : public testing::TestWithParam<const char*> {};

TEST_P(Architecture, IsWhatTransformersMakesOfIt) {
  const Json golden = golden_of(GetParam());
  const double tolerance = golden["tolerance"];
  Model model = model_of(GetParam(), golden);
  check_batch(model, golden, tolerance, "whole rows");
  const Json padded = golden.value("padded", Json::object());
  for (const auto& [side, rows] : padded.items()) check_batch(model, rows, tolerance, side + " padding");

  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = static_cast<int64_t>(golden["greedy"].size());
  const Generated generated = generate(model.transformer, {golden["prompt"].get<std::vector<int32_t>>()}, options)[0];
  EXPECT_EQ(generated.ids, golden["greedy"].get<std::vector<int32_t>>());

  if (golden.contains("logits_merged")) {
    merge_lora(model.transformer);
    const at::NoGradGuard no_grad;
    const Json& merged = golden["logits_merged"];
    const at::Tensor expected = at::tensor(merged["data"].get<std::vector<double>>(), at::kDouble)
                                    .view({-1, merged["shape"][2].get<int64_t>()});
    const Ragged batch = ragged(golden["input_ids"].get<Sequences>());
    expect_close(model.transformer.logits(model.transformer.hidden(batch)), expected, tolerance, "merged");
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, Architecture,
                         testing::Values("llama", "llama-bias", "llama-bf16", "llama-defaults", "llama-f16",
                                         "llama-gqa", "llama-lora", "llama-rope-linear", "llama-rope-llama3",
                                         "llama-rope-yarn", "llama-rope-yarn-options", "llama-sharded", "llama-tied"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kullback
