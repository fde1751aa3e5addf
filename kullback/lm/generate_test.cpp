#include "kullback/lm/generate.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/lm/naive_test.h"

namespace kullback {
namespace {

using test::random_ids;
using test::tiny_config;
using test::tiny_transformer;
using Prompts = std::vector<std::vector<int32_t>>;

constexpr float infinity = std::numeric_limits<float>::infinity();

NextTokenLaw law(const std::vector<float>& logits, const Sampling& sampling) {
  return next_token_law(logits, sampling);
}

void expect_law(const NextTokenLaw& ours, const std::vector<int32_t>& ids, const std::vector<double>& probabilities) {
  EXPECT_EQ(ours.ids, ids);
  ASSERT_EQ(ours.probabilities.size(), probabilities.size());
  for (size_t i = 0; i < probabilities.size(); ++i) EXPECT_NEAR(ours.probabilities[i], probabilities[i], 1e-12);
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

void expect_law_near(const NextTokenLaw& ours, const std::vector<int32_t>& ids,
                     const std::vector<double>& probabilities) {
  EXPECT_EQ(ours.ids, ids);
  ASSERT_EQ(ours.probabilities.size(), probabilities.size());
  for (size_t i = 0; i < probabilities.size(); ++i) EXPECT_NEAR(ours.probabilities[i], probabilities[i], 1e-6);
}

TEST(Sampling, TemperatureSharpensTheLaw) {
  expect_law_near(law(logs({0.2, 0.8}), {}), {0, 1}, {0.2, 0.8});
  expect_law_near(law(logs({0.2, 0.8}), {.temperature = 0.5}), {0, 1}, {0.04 / 0.68, 0.64 / 0.68});
  expect_law(law({1, 3, 3, 2}, {.temperature = 0}), {1}, {1});  // the lowest id among equals
  expect_law(law({-infinity, 10000, 10000}, {}), {1, 2}, {0.5, 0.5});
}

TEST(Sampling, FiltersKeepTheLikeliest) {
  const std::vector<float> row = logs({0.1, 0.4, 0.05, 0.25, 0.2});
  expect_law_near(law(row, {.top_k = 2}), {1, 3}, {0.4 / 0.65, 0.25 / 0.65});
  expect_law_near(law(row, {.top_k = 9}), {0, 1, 2, 3, 4}, {0.1, 0.4, 0.05, 0.25, 0.2});
  expect_law(law({1, 2, 2, 0}, {.top_k = 1}), {1, 2}, {0.5, 0.5});               // ties of the last one stay
  expect_law_near(law(row, {.top_p = 0.5}), {1, 3}, {0.4 / 0.65, 0.25 / 0.65});  // the one that crosses stays
  expect_law_near(law(row, {.top_p = 0.3}), {1}, {1});
  expect_law(law({0, 0, 0, 0}, {.top_p = 0.4}), {0, 1}, {0.5, 0.5});  // of equals the lowest ids
  expect_law_near(law(row, {.min_p = 0.45}), {1, 3, 4}, {0.4 / 0.85, 0.25 / 0.85, 0.2 / 0.85});
  // One after another: of the three that top-k leaves, top-p sees 0.4, 0.25, 0.2 of 0.85.
  expect_law_near(law(row, {.top_k = 3, .top_p = 0.76}), {1, 3}, {0.4 / 0.65, 0.25 / 0.65});
}

TEST(Sampling, DrawsByTheInverseOfTheCumulativeSum) {
  const NextTokenLaw three{{2, 5, 9}, {0.25, 0.5, 0.25}};
  EXPECT_EQ(draw(three, 0), 2);
  EXPECT_EQ(draw(three, 0.2499), 2);
  EXPECT_EQ(draw(three, 0.25), 5);
  EXPECT_EQ(draw(three, 0.75), 9);
  EXPECT_EQ(draw({{2, 5, 9}, {0.5, 0.49999, 0}}, 0.99999999), 5);  // rounding left none: the last that can be drawn
  EXPECT_EQ(draw({{2, 5}, {0, 1}}, 0), 5);
}

TEST(Sampling, SaysWhatIsWrong) {
  EXPECT_THROW(law({-infinity, -infinity}, {}), Error);
  EXPECT_THROW(law({1, std::nanf("")}, {}), Error);
  EXPECT_THROW(law({1, std::nanf("")}, {.temperature = 0}), Error);
  for (const Sampling& wrong :
       std::vector<Sampling>{{.temperature = -1}, {.top_k = -1}, {.top_p = 0}, {.top_p = 1.5}, {.min_p = -0.1}}) {
    EXPECT_THROW(validate(wrong), Error);
  }
}

TEST(Generate, GreedyTokensAreThoseOfWholeForwardPasses) {
  const Transformer model = tiny_transformer(tiny_config());
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 8;
  options.logps = true;
  std::vector<int32_t> ids = random_ids(37, 5, 1);
  const Generated generated = generate(model, {ids}, options)[0];
  ASSERT_EQ(generated.ids.size(), 8u);
  EXPECT_FALSE(generated.stopped);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < 8; ++i) {
    const at::Tensor row = at::log_softmax(model.logits(model.hidden(ragged({ids})))[-1], 0);
    EXPECT_EQ(generated.ids[i], row.argmax().item<int64_t>());
    EXPECT_NEAR(generated.logps[i], row.max().item<double>(), 1e-6);
    ids.push_back(generated.ids[i]);
  }
}

TEST(Generate, ASequenceDoesNotDependOnTheBatch) {
  const Transformer model = tiny_transformer(tiny_config());
  const Prompts prompts = {random_ids(37, 5, 1), random_ids(37, 1, 2), random_ids(37, 12, 3)};
  GenerationOptions options;
  options.max_new_tokens = 20;
  options.sampling.top_p = 0.95;
  options.stop_ids = {3, 4};
  options.seed = 11;
  const std::vector<Generated> together = generate(model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    options.streams = {i};
    const Generated alone = generate(model, {prompts[i]}, options)[0];
    EXPECT_EQ(alone.ids, together[i].ids);
    EXPECT_EQ(alone.stopped, together[i].stopped);
  }
  options.streams = {};
  options.seed = 12;
  EXPECT_NE(generate(model, prompts, options)[2].ids, together[2].ids);
}

// Few slots, a prompt several times, a common beginning: none of it changes a sequence.
TEST(Generate, SlotsAndSharedBeginningsChangeNothing) {
  const Transformer model = tiny_transformer(tiny_config());
  const std::vector<int32_t> beginning = random_ids(37, 7, 5);
  Prompts prompts;
  for (const size_t length : {1, 4, 4, 9, 0, 4}) {
    prompts.push_back(beginning);
    const std::vector<int32_t> rest = random_ids(37, length, 70 + length);
    prompts.back().insert(prompts.back().end(), rest.begin(), rest.end());
  }
  GenerationOptions options;
  options.max_new_tokens = 15;
  options.sampling.repetition_penalty = 1.2;
  options.stop_ids = {3, 4, 5};
  options.slots = 2;
  options.logps = true;
  options.top_logps = 3;
  const std::vector<Generated> together = generate(model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    options.streams = {i};
    const Generated alone = generate(model, {prompts[i]}, options)[0];
    EXPECT_EQ(alone.ids, together[i].ids);
    EXPECT_EQ(alone.top_ids, together[i].top_ids);
    ASSERT_EQ(alone.top_logps.size(), 3 * alone.ids.size());
    for (size_t t = 0; t < alone.ids.size(); ++t) {
      EXPECT_NEAR(alone.logps[t], together[i].logps[t], 1e-6);
      EXPECT_GE(alone.top_logps[3 * t], alone.logps[t]);
    }
  }
}

TEST(Generate, StopsAtATextAndCutsIt) {
  const Transformer model = tiny_transformer(tiny_config());
  BpeSpec spec;
  spec.name = "test";
  for (int i = 0; i < 37; ++i)
    spec.tokens.push_back(std::string(1, static_cast<char>(i < 26 ? 'a' + i : 'A' + i - 26)));
  spec.types.assign(37, 1);
  spec.pre_tokenizer = "smollm";
  const Tokenizer tokenizer(spec);
  const std::vector<int32_t> prompt = random_ids(37, 4, 9);
  GenerationOptions options;
  options.max_new_tokens = 12;
  options.tokenizer = &tokenizer;
  const Generated free = generate(model, {prompt}, options)[0];
  ASSERT_EQ(free.text.size(), 12u);
  options.stop_texts = {free.text.substr(6, 2)};
  const Generated stopped = generate(model, {prompt}, options)[0];
  const size_t place = free.text.find(options.stop_texts[0]);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.text, free.text.substr(0, place));
  EXPECT_EQ(stopped.ids.size(), place + 2);
}

TEST(Generate, StopsWhereItIsTold) {
  const Transformer model = tiny_transformer(tiny_config());
  const std::vector<int32_t> prompt = random_ids(37, 4, 9);
  GenerationOptions options;
  options.max_new_tokens = 12;
  const std::vector<int32_t> free = generate(model, {prompt}, options)[0].ids;
  ASSERT_EQ(free.size(), 12u);
  options.stop_ids = {free[5]};
  const auto first = std::find(free.begin(), free.end(), free[5]) - free.begin();
  const Generated stopped = generate(model, {prompt}, options)[0];
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(free.begin(), free.begin() + first + 1));

  options.stop_ids.clear();
  std::vector<int32_t> seen;
  const Generated refused = generate(model, {prompt}, options, [&](size_t which, int32_t token) {
    EXPECT_EQ(which, 0u);
    seen.push_back(token);
    return seen.size() < 3;
  })[0];
  EXPECT_EQ(seen, std::vector<int32_t>(free.begin(), free.begin() + 3));
  EXPECT_EQ(refused.ids, seen);
  EXPECT_FALSE(refused.stopped);

  options.max_new_tokens = 0;
  EXPECT_TRUE(generate(model, {prompt}, options)[0].ids.empty());
  options.max_new_tokens = 1000;  // the model's context ends first
  EXPECT_EQ(generate(model, {prompt}, options)[0].ids.size(), static_cast<size_t>(model.config.max_positions) - 4);
}

TEST(Generate, SampledTokensFollowTheLaw) {
  const Transformer model = tiny_transformer(tiny_config());
  const std::vector<int32_t> prompt = random_ids(37, 6, 4);
  GenerationOptions options;
  options.max_new_tokens = 1;
  options.sampling.top_k = 5;
  const size_t draws = 4000;
  std::vector<double> counts(37);
  for (const Generated& generated : generate(model, Prompts(draws, prompt), options))
    counts[static_cast<size_t>(generated.ids[0])] += 1;
  const at::NoGradGuard no_grad;
  const at::Tensor row = model.logits(model.hidden(ragged({prompt})))[-1].to(at::kFloat);
  const NextTokenLaw expected = next_token_law({row.const_data_ptr<float>(), 37}, options.sampling);
  ASSERT_EQ(expected.ids.size(), 5u);
  double chi_squared = 0;
  for (size_t i = 0; i < 5; ++i) {
    const double wanted = expected.probabilities[i] * draws, found = counts[static_cast<size_t>(expected.ids[i])];
    chi_squared += (found - wanted) * (found - wanted) / wanted;
    counts[static_cast<size_t>(expected.ids[i])] = 0;
  }
  EXPECT_LT(chi_squared, 18.5);  // the 0.999 quantile of chi-squared with 4 degrees of freedom
  for (const double count : counts) EXPECT_EQ(count, 0);
}

TEST(Generate, SaysWhatIsWrong) {
  const Transformer model = tiny_transformer(tiny_config());
  EXPECT_THROW(generate(model, {{}}, {}), Error);
  EXPECT_THROW(generate(model, {random_ids(37, 64, 1)}, {}), Error);
  GenerationOptions options;
  options.sampling.temperature = -1;
  EXPECT_THROW(generate(model, {{1}}, options), Error);
}

}  // namespace
}  // namespace kullback
