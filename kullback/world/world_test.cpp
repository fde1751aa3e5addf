// The world against brute force: recursion over strings with plain numbers, written from the definitions alone.
#include <cmath>
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "kullback/base/error.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"
#include "kullback/world/policy.h"
#include "kullback/world/reward.h"
#include "kullback/world/world.h"

namespace kullback {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

using Words = std::map<std::string, double>;  ///< response -> probability; "." stands for the end token

/// All responses by recursion: `next(prefix)` is the law of the next token.
void enumerate(const std::string& prefix, double probability, int64_t left,
               const std::function<std::vector<double>(const std::string&)>& next, Words& out) {
  if (left == 0) {
    out[prefix] += probability;
    return;
  }
  const std::vector<double> law = next(prefix);
  out[prefix + "."] += probability * law[0];
  for (size_t token = 1; token < law.size(); ++token) {
    enumerate(prefix + std::to_string(token), probability * law[token], left - 1, next, out);
  }
}

std::string squeezed(std::string text) {
  std::erase(text, ' ');
  return text;
}

/// A world's rows by prefix, spelt as strings.
std::map<std::string, std::vector<double>> by_prefix(const World& world, int64_t prompt, const Tensor& rows) {
  std::map<std::string, std::vector<double>> all;
  for (int64_t p = 0; p < world.space.prefixes(); ++p) {
    std::string name;
    for (const int64_t token : prefix_tokens(world.space, p)) name += std::to_string(token);
    std::vector<double> law;
    for (int64_t v = 0; v < world.space.vocabulary; ++v) law.push_back(std::exp(rows[prompt][p][v].item<double>()));
    all[name] = law;
  }
  return all;
}

Words brute(const World& world, int64_t prompt, const Tensor& rows) {
  const auto laws = by_prefix(world, prompt, rows);
  Words out;
  enumerate(
      "", 1, world.space.length, [&](const std::string& prefix) { return laws.at(prefix); }, out);
  return out;
}

Words of_world(const World& world, int64_t prompt, const Tensor& values) {
  Words out;
  for (int64_t r = 0; r < world.space.responses(); ++r) {
    out[squeezed(response_text(world.space, world.table, r))] = values[prompt][r].item<double>();
  }
  return out;
}

class EverySize : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  World world = make_world({.vocabulary = GetParam().first,
                            .length = GetParam().second,
                            .prompts = 2,
                            .reward = "random",
                            .proxy = "",
                            .seed = 3});
};

TEST_P(EverySize, SequenceProbabilitiesAreThoseOfBruteForce) {
  for (int64_t c = 0; c < 2; ++c) {
    const Words expected = brute(world, c, world.reference_rows), got = of_world(world, c, world.reference.exp());
    ASSERT_EQ(expected.size(), got.size());
    for (const auto& [word, probability] : expected) EXPECT_NEAR(got.at(word), probability, 1e-14) << word;
  }
}

TEST_P(EverySize, OptimumRewardAndKlAreThoseOfBruteForce) {
  const double beta = 0.7;
  const Standing s = standing(world, conditional_logps(world.space, best_policy(world, beta)));
  double reward = 0, kl = 0, reverse = 0, entropy = 0, length = 0;
  for (int64_t c = 0; c < 2; ++c) {
    const Words reference = brute(world, c, world.reference_rows), rewards = of_world(world, c, world.reward);
    double z = 0;
    for (const auto& [word, p] : reference) z += p * std::exp(rewards.at(word) / beta);
    const double weight = world.prompts[c].item<double>();
    for (const auto& [word, p] : reference) {
      const double best = p * std::exp(rewards.at(word) / beta) / z;
      reward += weight * best * rewards.at(word);
      kl += weight * best * std::log(best / p);
      reverse += weight * p * std::log(p / best);
      entropy -= weight * best * std::log(best);
      length += weight * best * static_cast<double>(word.size());
    }
  }
  EXPECT_NEAR(s.reward, reward, 1e-12);
  EXPECT_NEAR(s.kl, kl, 1e-12);
  EXPECT_NEAR(s.reverse_kl, reverse, 1e-12);
  EXPECT_NEAR(s.entropy, entropy, 1e-11);
  EXPECT_NEAR(s.length, length, 1e-12);
  EXPECT_NEAR(s.gap(), 0, 1e-9);
}

TEST_P(EverySize, ConditionalsUndoSequences) {
  EXPECT_TRUE(at::allclose(conditional_logps(world.space, world.reference), world.reference_rows, 0, 1e-12));
}

TEST_P(EverySize, MarginalsAreThoseOfBruteForce) {
  const Tensor marginals = token_marginals(world.space, world.reference_rows);
  const Words words = brute(world, 1, world.reference_rows);
  for (int64_t t = 0; t < world.space.length; ++t) {
    for (int64_t v = 0; v < world.space.vocabulary; ++v) {
      double expected = 0;
      for (const auto& [word, p] : words) {
        if (static_cast<int64_t>(word.size()) > t &&
            word[static_cast<size_t>(t)] == (v == 0 ? '.' : static_cast<char>('0' + v)))
          expected += p;
      }
      EXPECT_NEAR(marginals[1][t][v].item<double>(), expected, 1e-13);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, EverySize,
                         ::testing::Values(std::pair(2, 1), std::pair(2, 6), std::pair(3, 3), std::pair(5, 2),
                                           std::pair(8, 1), std::pair(4, 4), std::pair(8, 3)));

TEST(World, KlOfResponsesIsTheSumOfThoseOfTokensInOneDirectionOnly) {
  const World world = make_world({.vocabulary = 4, .length = 3, .prompts = 3, .reward = "random", .proxy = ""});
  const Tensor rows = conditional_logps(world.space, best_policy(world, 0.5)),
               logps = response_logps(world.space, rows);
  const auto both = [&](const RowDivergence& d) {
    return std::pair(response_divergence(d, logps, world.reference),
                     token_divergence(world.space, d, rows, world.reference_rows));
  };
  const auto [responses, tokens] = both(divergence("kl").from_policy());
  EXPECT_TRUE(at::allclose(responses, tokens, 1e-12));
  const auto [js_responses, js_tokens] = both(divergence("js").from_policy());
  EXPECT_FALSE(at::allclose(js_responses, js_tokens, 1e-3));
}

TEST(World, BestOfNIsWhatEnumeratingAllDrawsGives) {
  const World world =
      make_world({.vocabulary = 3, .length = 2, .prompts = 2, .reward = "count:1", .proxy = ""});  // with ties
  const Tensor got = best_of_n(world.reference, world.reward, 3).exp();
  const int64_t count = world.space.responses();
  const Tensor p = world.reference.exp();
  for (int64_t c = 0; c < 2; ++c) {
    std::vector<double> expected(static_cast<size_t>(count), 0);
    for (int64_t i = 0; i < count * count * count; ++i) {
      const int64_t draws[] = {i % count, i / count % count, i / count / count};
      double probability = 1, most = -INFINITY;
      for (const int64_t r : draws) {
        probability *= p[c][r].item<double>();
        most = std::max(most, world.reward[c][r].item<double>());
      }
      int winners = 0;
      for (const int64_t r : draws) winners += world.reward[c][r].item<double>() == most ? 1 : 0;
      for (const int64_t r : draws) {
        if (world.reward[c][r].item<double>() == most) expected[static_cast<size_t>(r)] += probability / winners;
      }
    }
    for (int64_t r = 0; r < count; ++r) EXPECT_NEAR(got[c][r].item<double>(), expected[static_cast<size_t>(r)], 1e-13);
  }
}

TEST(World, BestOfManyKeepsTinyMasses) {
  const Tensor logps = at::tensor({-300.0, std::log1p(-std::exp(-300.0))}, at::kDouble).unsqueeze(0);
  const Tensor rewards = at::tensor({1.0, 0.0}, at::kDouble).unsqueeze(0);
  EXPECT_NEAR(best_of_n(logps, rewards, 1000)[0][0].item<double>(), -300 + std::log(1000.0), 1e-9);
  EXPECT_TRUE(at::equal(best_of_n(logps, rewards, 1), logps));
}

TEST(World, NothingBeatsTheFrontier) {
  const World world =
      make_world({.vocabulary = 3, .length = 3, .prompts = 2, .reward = "random + 0.3*length", .proxy = "", .seed = 5});
  RandomStream stream(1);
  for (int i = 0; i < 200; ++i) {
    const Standing s = standing(world, random_rows(world.space, 2, 2 * stream.uniform(), stream));
    EXPECT_GT(s.gap(), -1e-9);
  }
  const std::vector<FrontierPoint> points = frontier(world, 20);
  EXPECT_EQ(points.size(), 20U);
  EXPECT_EQ(points[0].kl, 0);
  EXPECT_NEAR(points[0].reward, standing(world, world.reference_rows).reward, 1e-12);
  double last = -INFINITY;
  for (const FrontierPoint& point : points) {
    const Standing s = standing(world, conditional_logps(world.space, best_policy(world, point.beta)));
    EXPECT_NEAR(point.kl, s.kl, 1e-12);
    EXPECT_NEAR(point.reward, s.reward, 1e-12);
    EXPECT_GT(point.reward, last);
    last = point.reward;
  }
}

TEST(World, ARewardWithAKnownOptimumHasIt) {
  const World world =
      make_world({.vocabulary = 3, .length = 3, .prompts = 2, .reward = "0.4*towards:2", .proxy = "", .seed = 9});
  EXPECT_TRUE(at::allclose(best_policy(world, 0.4), target_law(world.space, 2, 9, 2), 0, 1e-12));
}

TEST(World, RewardsAreWhatTheirNamesSay) {
  const World world = make_world(
      {.vocabulary = 3, .length = 3, .prompts = 1, .reward = "length + 10*count:2 - 0.5*ends:12", .proxy = ""});
  const Words reward = of_world(world, 0, world.reward);
  EXPECT_EQ(reward.at("."), 0);
  EXPECT_EQ(reward.at("1."), 1);
  EXPECT_EQ(reward.at("12."), 11.5);
  EXPECT_EQ(reward.at("212"), 22.5);
  EXPECT_EQ(reward.at("221"), 23);
}

TEST(World, RewardsThatCannotBeReadAreRefused) {
  const auto refused = [](const std::string& reward) -> std::string {
    try {
      make_world({.vocabulary = 3, .reward = reward, .proxy = ""});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused("lenght"), HasSubstr("unknown reward \"lenght\" (did you mean \"length\"?)"));
  EXPECT_THAT(refused(""), HasSubstr("no reward is given"));
  EXPECT_THAT(refused("x*length"), HasSubstr("\"x\" is no number"));
  EXPECT_THAT(refused("count:3"), HasSubstr("needs tokens from 1 to 2"));
  EXPECT_THAT(refused("count"), HasSubstr("count needs a token"));
  EXPECT_THAT(refused("count:12"), HasSubstr("count takes one token"));
  EXPECT_THAT(refused("length:1"), HasSubstr("length takes no argument"));
  EXPECT_THAT(refused("random:x"), HasSubstr("whole number"));
  EXPECT_THAT(refused("length +"), HasSubstr("unknown reward \"\""));
}

TEST(World, AProxyIsOptimisedAndTheRewardIsMeasured) {
  const World world = make_world({.vocabulary = 3, .length = 3, .prompts = 2, .reward = "random", .proxy = "length"});
  const Standing s = standing(world, conditional_logps(world.space, best_of_n(world.reference, world.proxy, 64)));
  EXPECT_GT(s.proxy, 1.9);
  EXPECT_GT(s.gap(), 0.1);
}

TEST(World, ATransformersRowsAreThoseOfItsSequencesOneByOne) {
  const World world = make_world({.vocabulary = 4,
                                  .length = 3,
                                  .prompts = 2,
                                  .policy = WorldOptions::Policy::transformer,
                                  .reward = "random",
                                  .proxy = ""});
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t p = 0; p < world.space.prefixes(); ++p) {
      std::vector<int32_t> ids{static_cast<int32_t>(4 + c)};
      for (const int64_t token : prefix_tokens(world.space, p)) ids.push_back(static_cast<int32_t>(token));
      const at::NoGradGuard no_grad;
      const Tensor hidden = world.transformer->hidden(ragged({ids}));
      const Tensor logits = world.transformer->logits(hidden.narrow(0, hidden.size(0) - 1, 1)).narrow(1, 0, 4);
      EXPECT_TRUE(at::allclose(at::log_softmax(logits[0], 0), world.reference_rows[c][p], 0, 1e-12));
    }
  }
}

TEST(World, GradientsOfADivergenceAreThoseOfFiniteDifferences) {
  const World world = make_world({.vocabulary = 3, .length = 2, .prompts = 1, .reward = "random", .proxy = ""});
  const auto value = [&](const Tensor& logits) {
    const Tensor rows = log_probabilities(as_rows(logits)).reshape(logits.sizes());
    return response_divergence(divergence("js").from_policy(), response_logps(world.space, rows), world.reference)
               .sum() +
           token_divergence(world.space, divergence("chi2").from_policy(), rows, world.reference_rows).sum();
  };
  RandomStream stream(4);
  Tensor logits = random_rows(world.space, 1, 1, stream).requires_grad_(true);
  value(logits).backward();
  const Tensor gradient = logits.grad().flatten();
  const at::NoGradGuard no_grad;
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    const auto moved = [&](double by) {
      Tensor other = logits.detach().clone();
      other.flatten()[i] += by;
      return value(other).item<double>();
    };
    EXPECT_NEAR(gradient[i].item<double>(), (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-8);
  }
}

TEST(World, ImpossibleResponsesStayImpossible) {
  const SequenceSpace space{.vocabulary = 3, .length = 1, .ends = false};
  const Tensor reference = at::tensor({std::log(0.5), std::log(0.5), -INFINITY}, at::kDouble).unsqueeze(0);
  const World world = make_world(space, reference, at::tensor({0.0, 1.0, 5.0}, at::kDouble).unsqueeze(0));
  const Standing s = standing(world, conditional_logps(space, best_policy(world, 0.1)));
  EXPECT_NEAR(s.reward, 1, 1e-4);
  EXPECT_NEAR(s.kl, std::log(2.0), 1e-3);
  EXPECT_FALSE(std::isnan(s.reverse_kl));
}

TEST(World, TheLargestIsEnumerated) {
  const World world =
      make_world({.vocabulary = 8, .length = 6, .prompts = 1, .reward = "random + length", .proxy = ""});
  EXPECT_EQ(world.space.responses(), 19608 + 117649);
  const Standing s = standing(world, conditional_logps(world.space, best_policy(world, 1)));
  EXPECT_NEAR(s.gap(), 0, 1e-8);
  EXPECT_NEAR(world.reference.exp().sum().item<double>(), 1, 1e-12);
}

}  // namespace
}  // namespace kullback
