// The real model against numbers that transformers computed from the same file (fixtures/smollm2/logits.json).
#include <fstream>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kullback/base/json.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/model.h"
#include "kullback/lm/score.h"

namespace kullback {
namespace {

const Model& smollm2() {
  static const Model model = [] {
    at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
    return load_model("smollm2-135m-instruct");
  }();
  return model;
}

Json fixture() {
  std::ifstream file(KULLBACK_FIXTURES "/smollm2/logits.json");
  return Json::parse(file);
}

std::vector<Message> conversation(const Json& item) {
  std::vector<Message> messages;
  if (!item["system"].is_null()) messages.push_back({"system", item["system"]});
  messages.push_back({"user", item["user"]});
  return messages;
}

void expect_near(const std::vector<double>& ours, const Json& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(ours.size(), expected.size()) << what;
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], expected[i].get<double>(), tolerance) << what << " " << i;
}

TEST(SlowSmolLm2, TextBecomesTheSameIds) {
  const Model& model = smollm2();
  for (const Json& item : fixture()["cases"]) {
    const std::string rendered = model.chat_template().render(conversation(item), true);
    EXPECT_EQ(rendered, item["rendered"].get<std::string>());
    EXPECT_EQ(model.text().encode(rendered), item["ids"].get<std::vector<int32_t>>());
  }
}

TEST(SlowSmolLm2, ScoresAreThoseOfTransformers) {
  const Model& model = smollm2();
  std::vector<std::vector<int32_t>> sequences;
  const Json cases = fixture()["cases"];
  for (const Json& item : cases) sequences.push_back(item["ids"].get<std::vector<int32_t>>());
  const std::vector<SequenceScores> scores = score(model.transformer, sequences, 8);  // all of them in one ragged batch
  for (size_t c = 0; c < cases.size(); ++c) {
    expect_near(scores[c].logps, cases[c]["logps"], 2e-3, "logps");
    expect_near(scores[c].entropy, cases[c]["entropy"], 2e-3, "entropy");
    expect_near(scores[c].logsumexp, cases[c]["logsumexp"], 2e-3, "logsumexp");
    const size_t last = scores[c].top_ids.size() - 8;
    const std::vector<int32_t> ids(scores[c].top_ids.begin() + static_cast<long>(last), scores[c].top_ids.end());
    EXPECT_EQ(ids, cases[c]["last_top8"]["ids"].get<std::vector<int32_t>>());
    std::vector<double> logits(scores[c].top_logps.begin() + static_cast<long>(last), scores[c].top_logps.end());
    for (double& logit : logits) logit += scores[c].logsumexp.back();
    expect_near(logits, cases[c]["last_top8"]["logits"], 2e-3, "the largest logits");
  }
}

TEST(SlowSmolLm2, GreedyTextIsThatOfTransformers) {
  const Model& model = smollm2();
  const Json cases = fixture()["cases"];
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : cases) prompts.push_back(item["ids"].get<std::vector<int32_t>>());
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 32;
  options.stop_ids = model.generation.stop_ids;
  const std::vector<Generated> together = generate(model.transformer, prompts, options);
  for (size_t c = 0; c < cases.size(); ++c) {
    EXPECT_EQ(together[c].ids, cases[c]["greedy"].get<std::vector<int32_t>>());
    EXPECT_EQ(model.text().decode(together[c].ids), cases[c]["greedy_text"].get<std::string>());
    EXPECT_EQ(generate(model.transformer, {prompts[c]}, options)[0].ids, together[c].ids) << "alone";
  }
}

#ifdef __linux__
// A figure of /proc/self/status, in bytes.
double memory(const std::string& figure) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(figure + ":")) return 1024 * std::stod(line.substr(figure.size() + 1));
  }
  return 0;
}

TEST(SlowSmolLm2, LoadingHoldsLittleMoreThanTheWeights) {
  smollm2();                                      // the libraries' own memory is there by now
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the peak so far
  const double before = memory("VmRSS");
  const Model again = load_model("smollm2-135m-instruct");
  const double weights = 4.0 * static_cast<double>(again.transformer.parameter_count());
  EXPECT_LE(memory("VmHWM") - before, 1.15 * weights);
  EXPECT_GE(memory("VmHWM") - before, 0.9 * weights);  // or nothing was measured
}
#endif

TEST(SlowSmolLm2, CarriesWhatItsMakersSay) {
  const Config& config = smollm2().config();
  EXPECT_EQ(config.vocabulary_size, 49152);
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.key_value_heads, 3);
  EXPECT_EQ(config.rope.theta, 100000);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(smollm2().transformer.parameter_count(), 134515008);
  EXPECT_EQ(smollm2().generation.stop_ids, std::vector<int32_t>{2});
}

}  // namespace
}  // namespace kullback
