#include "kullback/train/limit.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "kullback/base/error.h"
#include "kullback/train/optimizer.h"

namespace kullback {
namespace {

using ::testing::HasSubstr;

TEST(Limit, IsReadInEverySpelling) {
  const Limit plain = parse_limit("kl <= 0.05");
  EXPECT_EQ(plain.name, "kl");
  EXPECT_EQ(plain.divergence.divergence.name(), "kl");
  EXPECT_EQ(plain.divergence.direction, Direction::from_policy);
  EXPECT_FALSE(plain.per_sequence || plain.fixed);
  EXPECT_EQ(plain.bound, 0.05);
  EXPECT_EQ(parse_limit("kl/token<=1").name, "kl");
  const Limit sequence = parse_limit("js:0.3/sequence<=2e1");
  EXPECT_TRUE(sequence.per_sequence);
  EXPECT_EQ(sequence.name, "js:0.3/sequence");
  EXPECT_EQ(sequence.bound, 20);
  const Limit fixed = parse_limit("reverse-kl*0.1");
  EXPECT_TRUE(fixed.fixed);
  EXPECT_EQ(fixed.bound, 0.1);
}

TEST(Limit, IsRefusedWithItsReason) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      parse_limit(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused("kl"), HasSubstr("--limit: \"kl\" is neither a bound"));
  EXPECT_THAT(refused("kl<=0"), HasSubstr("no number above 0"));
  EXPECT_THAT(refused("kl<=-1"), HasSubstr("no number above 0"));
  EXPECT_THAT(refused("kl<=nan"), HasSubstr("no number above 0"));
  EXPECT_THAT(refused("kl<=0.05x"), HasSubstr("no number above 0"));
  EXPECT_THAT(refused("kll<=0.05"), HasSubstr("did you mean \"kl\""));
  EXPECT_THAT(refused("kl/word<=0.05"), HasSubstr("neither /token nor /sequence"));
}

/// A quadratic world: the loss (x - 1)^2 would go to x = 1, its "divergence" is x^2. Trained as models are, the rate falling.
double settle(Limits& limits, const std::string& name, double bound_seen, double held_out_factor, int steps) {
  const at::Tensor weight = at::zeros({1}, at::kDouble).requires_grad_(true);
  Optimizer optimizer({{"x", weight}}, {});
  double x = 0;
  for (int step = 0; step < steps; ++step) {
    weight.mutable_grad() = at::full({1}, 2 * (x - 1) + limits.weights(1, 1)[0] * 2 * x, at::kDouble);
    optimizer.step(0.02 * schedule_factor({.warmup = 0}, step, steps));
    x = weight.item<double>();
    Figures figures{{"limit/" + name, {x * x, 1}}};
    limits.after_step(figures);
    if (step % 20 == 19) limits.observe_held_out({{"limit/" + name, {held_out_factor * x * x, 1}}});
    if (step == steps - 1) {
      EXPECT_EQ(figures.at("limit/" + name + " bound").value(), bound_seen);
    }
  }
  return x * x;
}

TEST(Limit, HoldsTheDivergenceAtItsBoundWhereItBinds) {
  for (const double bound : {0.5, 0.05, 0.005}) {
    Limits limits(LimitOptions{.limit = {fmt::format("kl<={}", bound)}});
    EXPECT_NEAR(settle(limits, "kl", bound, 1, 1500), bound, 0.05 * bound);
  }
}

TEST(Limit, IsOfNoEffectWhereItDoesNotBind) {
  Limits limits(LimitOptions{.limit = {"kl<=2"}});
  EXPECT_NEAR(settle(limits, "kl", 2, 1, 600), 1, 1e-3);
  EXPECT_LT(limits.weights(1, 1)[0], 1e-4);
}

TEST(Limit, HoldsTheHeldOutDivergenceNotThatOfTheBatches) {
  Limits limits(LimitOptions{.limit = {"kl<=0.1"}});
  EXPECT_NEAR(settle(limits, "kl", 0.1, 1.25, 1500), 0.08, 0.008);
}

/// One step at a divergence, and a look at the held-out rows.
double settling(const std::string& limit, const std::string& name, double seen, double held_out) {
  Limits limits(LimitOptions{.limit = {limit}});
  Figures figures{{"limit/" + name, {seen, 1}}};
  limits.after_step(figures);
  limits.observe_held_out({{"limit/" + name, {held_out, 1}}});
  return limits.settling_factor();
}

TEST(Limit, SaysByWhatTheUpdateIsToBeScaledInTheEnd) {
  EXPECT_DOUBLE_EQ(settling("kl<=0.1", "kl", 0.1, 0.4), 0.5);         // exceeded
  EXPECT_DOUBLE_EQ(settling("kl<=0.1", "kl", 0.1, 0.1 / 1.44), 1.2);  // bound the run, which ended short of it
  EXPECT_EQ(settling("kl<=0.1", "kl", 0.1, 0.1005), 1);               // close enough
  EXPECT_EQ(settling("kl<=0.1", "kl", 0.01, 0.01), 1);                // never bound
  EXPECT_DOUBLE_EQ(settling("kl<=0.1", "kl", 0.01, 0.4), 0.5);        // exceeded on held-out rows alone
  EXPECT_EQ(settling("kl*0.1", "kl", 0.1, 0.4), 1);                   // no bound
}

TEST(Limit, AFixedWeightStaysAsItIsAndCountsWhatItSays) {
  Limits limits(LimitOptions{.limit = {"kl*0.3", "kl/sequence*0.3"}});
  Figures figures{{"limit/kl", {5, 1}}, {"limit/kl/sequence", {5, 1}}};
  limits.after_step(figures);
  const std::vector<double> weights = limits.weights(40, 4);
  EXPECT_DOUBLE_EQ(weights[0], 0.3 / 40);
  EXPECT_DOUBLE_EQ(weights[1], 0.3 / 4);
  EXPECT_FALSE(figures.contains("multiplier/kl"));
}

TEST(Limit, ItsStateGoesOnAsIfNeverStopped) {
  const LimitOptions options{.limit = {"kl<=0.1", "tv<=0.2"}};
  Limits whole(options), stopped(options);
  const auto step = [](Limits& limits, double kl) {
    Figures figures{{"limit/kl", {kl, 1}}, {"limit/tv", {2 * kl, 1}}};
    limits.after_step(figures);
  };
  for (const double kl : {0.1, 0.3, 0.2}) step(whole, kl), step(stopped, kl);
  const Figures held_out{{"limit/kl", {0.25, 1}}, {"limit/tv", {0.5, 1}}};
  whole.observe_held_out(held_out), stopped.observe_held_out(held_out);
  Limits resumed(options);
  resumed.restore(Json::parse(stopped.state().dump()));
  for (const double kl : {0.4, 0.05}) step(whole, kl), step(resumed, kl);
  EXPECT_EQ(whole.weights(7, 2), resumed.weights(7, 2));
  EXPECT_EQ(whole.settling_factor(), resumed.settling_factor());
}

}  // namespace
}  // namespace kullback
