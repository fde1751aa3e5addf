#include "kullback/align/dpo.h"

#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"
#include "kullback/train/recipe.h"

namespace kullback {
namespace {

using at::Tensor;
using LossType = DpoOptions::LossType;

const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

Tensor logps(std::vector<double> values, int64_t rows) { return at::tensor(values, at::kDouble).reshape({rows, -1}); }

Side side(const Tensor& policy, const Tensor& reference, const Tensor& mask) {
  return {.logps = policy, .reference_logps = reference, .mask = mask, .divergences = {}};
}

/// Random pairs with ragged masks.
PreferenceBatch random_batch(int64_t pairs, int64_t length, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  const auto one = [&] {
    const Tensor mask = at::arange(length).unsqueeze(0) < at::randint(1, length + 1, {pairs, 1});
    return side(-at::rand({pairs, length}, at::kDouble) * 3, -at::rand({pairs, length}, at::kDouble) * 3, mask);
  };
  return {.chosen = one(), .rejected = one(), .weight = {}};
}

const std::vector<LossType> smooth_types{
    LossType::sigmoid,  LossType::robust,       LossType::ipo,       LossType::sigmoid_norm, LossType::exo_pair,
    LossType::nca_pair, LossType::bco_pair,     LossType::sppo_hard, LossType::apo_zero,     LossType::apo_down,
    LossType::aot,      LossType::aot_unpaired, LossType::discopop,  LossType::sft,          LossType::hinge};

TEST(Dpo, GoldenFixture) {
  const CheckReport report = check_file(KULLBACK_FIXTURES "/dpo.json");
  EXPECT_GE(report.results.size(), 27u);
  for (const CheckResult& result : report.results)
    EXPECT_TRUE(result.passed) << result.name << ": " << result.largest_difference << " at " << result.at;
}

TEST(SlowDpo, RepeatsTheStepsOfTrlsTrainer) {
  const CheckReport report = check_file(KULLBACK_FIXTURES "/smollm2/trl-trace-dpo.json");
  EXPECT_EQ(report.results.size(), 8u);
  for (const CheckResult& result : report.results) EXPECT_TRUE(result.passed) << result.name << ": " << result.at;
}

TEST(Dpo, EveryLossHasTheGradientOfItsFiniteDifferences) {
  for (const LossType type : smooth_types) {
    const DpoOptions options{
        .beta = 0.4, .loss_type = {type}, .label_smoothing = 0.1, .ld_alpha = 0.6, .discopop_tau = 0.7};
    PreferenceBatch batch = random_batch(3, 5, 11);
    batch.chosen.logps.requires_grad_(true);
    batch.rejected.logps.requires_grad_(true);
    const auto gradients = torch::autograd::grad({dpo_loss(batch, options).value},
                                                 {batch.chosen.logps, batch.rejected.logps}, {}, {}, false, true);
    for (const bool chosen : {true, false}) {
      const Tensor analytic =
          gradients[chosen ? 0 : 1].defined() ? gradients[chosen ? 0 : 1] : at::zeros({3, 5}, at::kDouble);
      for (int64_t i = 0; i < 15; ++i) {
        const double step = 1e-6;
        double values[2];
        for (const int sign : {0, 1}) {
          PreferenceBatch moved = batch;
          Tensor& logp = chosen ? moved.chosen.logps : moved.rejected.logps;
          logp = logp.detach().clone();
          logp.reshape(-1)[i] += sign == 0 ? -step : step;
          values[sign] = dpo_loss(moved, options).value.item<double>();
        }
        EXPECT_NEAR(analytic.reshape(-1)[i].item<double>(), (values[1] - values[0]) / (2 * step), 1e-7)
            << static_cast<int>(type) << " " << i;
      }
    }
  }
}

TEST(Dpo, WhatStandsInMaskedPlacesNeverMatters) {
  for (const double garbage : {-7.75, nan, infinity, -infinity}) {
    PreferenceBatch clean = random_batch(4, 6, 3), dirty = clean;
    for (Side* s : {&dirty.chosen, &dirty.rejected}) {
      s->logps = at::where(s->mask, s->logps, at::full({}, garbage, at::kDouble)).requires_grad_(true);
      s->reference_logps = at::where(s->mask, s->reference_logps, at::full({}, garbage, at::kDouble));
    }
    const Tensor loss = dpo_loss(dirty, {}).value;
    EXPECT_EQ(loss.item<double>(), dpo_loss(clean, {}).value.item<double>());
    const Tensor gradient = torch::autograd::grad({loss}, {dirty.chosen.logps})[0];
    EXPECT_TRUE(gradient.masked_select(~dirty.chosen.mask).eq(0).all().item<bool>());
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

TEST(Dpo, TheRejectedSideUsesItsOwnMask) {
  PreferenceBatch batch{
      .chosen = side(logps({-1, -9}, 1), logps({0, 0}, 1), at::tensor({1, 0}).to(at::kBool).reshape({1, 2})),
      .rejected = side(logps({-2, -3}, 1), logps({0, 0}, 1), at::ones({1, 2}, at::kBool)),
      .weight = {}};
  EXPECT_DOUBLE_EQ(dpo_loss(batch, {.beta = 1}).parts.at("logits").item<double>(), -1 + 5);
}

TEST(Dpo, BatchesOfAStepAddUpToTheBigBatch) {
  const PreferenceBatch whole = random_batch(6, 4, 5);
  const DpoOptions options{.loss_type = {LossType::sigmoid, LossType::sft}, .loss_weights = {1, 0.5}};
  const double tokens = whole.chosen.mask.sum().item<double>();
  double sum = 0;
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {4, 2}}) {
    const auto part = [&](const Side& s) {
      return side(s.logps.narrow(0, begin, count), s.reference_logps.narrow(0, begin, count),
                  s.mask.narrow(0, begin, count));
    };
    sum += dpo_loss({.chosen = part(whole.chosen),
                     .rejected = part(whole.rejected),
                     .weight = {},
                     .pairs_in_step = 6,
                     .chosen_tokens_in_step = tokens},
                    options)
               .value.item<double>();
  }
  EXPECT_NEAR(sum, dpo_loss(whole, options).value.item<double>(), 1e-12);
}

TEST(Dpo, EmptyResponsesCountWithSumsOfZero) {
  PreferenceBatch batch = random_batch(2, 3, 7);
  batch.chosen.mask = at::zeros({2, 3}, at::kBool);
  batch.rejected.mask = at::zeros({2, 3}, at::kBool);
  EXPECT_NEAR(dpo_loss(batch, {}).value.item<double>(), std::log(2), 1e-15);
  EXPECT_TRUE(std::isfinite(dpo_loss(batch, {.loss_type = {LossType::sft}}).value.item<double>()));
  EXPECT_TRUE(std::isfinite(dpo_loss(batch, {.loss_type = {LossType::ipo}}).value.item<double>()));
}

TEST(Dpo, ATokenForbiddenByBothModelsIsDropped) {
  const Tensor mask = at::ones({1, 2}, at::kBool);
  const PreferenceBatch both{.chosen = side(logps({-1, -infinity}, 1), logps({-1.5, -infinity}, 1), mask),
                             .rejected = side(logps({-1, -1}, 1), logps({-1, -1}, 1), mask),
                             .weight = {}};
  EXPECT_NEAR(dpo_loss(both, {.beta = 1}).parts.at("logits").item<double>(), 0.5, 1e-15);
  const PreferenceBatch policy_only{
      .chosen = side(logps({-1, -infinity}, 1), logps({-1.5, -2}, 1), mask), .rejected = both.rejected, .weight = {}};
  EXPECT_EQ(dpo_loss(policy_only, {.beta = 1}).value.item<double>(), infinity);
}

TEST(Dpo, WeightsMultiplyEachPairsLoss) {
  PreferenceBatch batch = random_batch(3, 4, 9);
  const Tensor losses = dpo_loss(batch, {}).losses;
  batch.weight = at::tensor({0.0, 2.0, 1.0}, at::kDouble);
  EXPECT_NEAR(dpo_loss(batch, {}).value.item<double>(), (losses * batch.weight).sum().item<double>() / 3, 1e-15);
}

TEST(Dpo, OptionsThatContradictEachOtherAreRefused) {
  const auto recipe = std::any_cast<PreferenceRecipe>(find_method("dpo").recipe);
  const auto message = [&](const DpoOptions& o) {
    try {
      recipe.validate(&o);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({.loss_type = {LossType::exo_pair}}), ::testing::HasSubstr("--label-smoothing"));
  EXPECT_THAT(message({.loss_type = {LossType::sigmoid, LossType::sft}}), ::testing::HasSubstr("--loss-weights"));
  EXPECT_EQ(message({}), "");
}

TEST(Dpo, NeedsAReferenceUnlessToldOtherwise) {
  const auto recipe = std::any_cast<PreferenceRecipe>(find_method("dpo").recipe);
  const DpoOptions plain, none{.reference = DpoOptions::Reference::none},
      prior{.reference = DpoOptions::Reference::prior};
  EXPECT_TRUE(recipe.needs(&plain).reference_logps);
  EXPECT_FALSE(recipe.needs(&none).reference());
  EXPECT_TRUE(recipe.needs(&prior).reference_without_prompt);
}

}  // namespace
}  // namespace kullback
