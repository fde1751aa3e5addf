#include "kullback/lm/sampling.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/decode/best_of_n.h"
#include "kullback/lm/beam_search.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/model_beams.h"
#include "kullback/lm/score.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

TEST(SamplingFixture, Passes) {
  for (const CheckResult& result : check_file(KULLBACK_FIXTURES "/sampling.json").results)
    EXPECT_TRUE(result.passed) << result.name << ": " << result.largest_difference << " at " << result.at;
}

// A row without a live token, or with a NaN, is an error and not a uniform draw.
TEST(SamplingRows, WithoutALawAreErrors) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(log_softmax(std::vector<double>{-infinity, -infinity}), Error);
  EXPECT_THROW(arg_max(std::vector<double>{1, std::nan("")}), Error);
  EXPECT_THROW(softmax(std::vector<double>{1, infinity}), Error);
}

TEST(BeamSearch, OfEveryWidthFindsTheModeOfARowThatForgets) {
  const NextLogps next = [](const std::vector<std::vector<int32_t>>& sequences) {
    return std::vector<std::vector<double>>(sequences.size(), log_softmax(std::vector<double>{0.1, 2, -1}));
  };
  for (const int64_t width : {1, 2, 9}) {
    const std::vector<Beam> best =
        beam_search(next, {.num_beams = width, .max_new_tokens = 3, .length_penalty = 0, .num_return = 1});
    ASSERT_EQ(best.size(), 1u);
    EXPECT_EQ(best[0].tokens, (std::vector<int32_t>{1, 1, 1}));
  }
  EXPECT_THROW(beam_search(next, {.num_beams = 0}), Error);
  EXPECT_THROW(beam_search(next, {.num_beams = 2, .num_return = 3}), Error);
}

TEST(BeamSearch, OfAModelFindsMoreLikelyTextsThanGreed) {
  Config config;
  config.vocabulary_size = 11, config.hidden_size = 8, config.layers = 2, config.heads = config.key_value_heads = 2;
  config.head_size = 4, config.mlp_size = 12;
  const Transformer model = random_transformer(config, 3, 0.6);
  const std::vector<int32_t> prompt = {1, 5, 2};
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = 6;
  options.logps = true;
  const Generated greedy = generate(model, {prompt}, options)[0];
  BeamSearchOptions beams{.num_beams = 1, .max_new_tokens = 6, .length_penalty = 0};
  const Beam narrow = beam_search(model, prompt, beams)[0];
  EXPECT_EQ(narrow.tokens, greedy.ids);
  EXPECT_NEAR(narrow.logp, std::accumulate(greedy.logps.begin(), greedy.logps.end(), 0.0), 1e-4);
  beams.num_beams = 40;
  const Beam wide = beam_search(model, prompt, beams)[0];
  EXPECT_GE(wide.logp, narrow.logp - 1e-6);
  // Its log-probability is that of a whole forward pass.
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), wide.tokens.begin(), wide.tokens.end());
  const std::vector<double> logps = score(model, {all}, 0).front().logps;
  EXPECT_NEAR(wide.logp, std::accumulate(logps.begin() + 2, logps.end(), 0.0), 1e-4);
  EXPECT_THROW(beam_search(model, {}, beams), Error);
}

TEST(BestOfN, MovesNoFurtherThanItsBound) {
  const std::vector<double> p = {0.1, 0.2, 0.3, 0.4}, reward = {3, 1, 1, 0};
  double before = -1;
  for (const int64_t n : {1, 2, 5, 50}) {
    const BestOfNLaw law = best_of_n_law(p, reward, n);
    EXPECT_LE(law.kl, law.kl_bound + 1e-12);
    EXPECT_GT(law.expected_reward, before);
    before = law.expected_reward;
  }
  EXPECT_THROW(best_of(std::vector<double>{}), Error);
}

}  // namespace
}  // namespace kullback
