#include "kullback/divergence/head.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/divergence/rows_test.h"

namespace kullback::test {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = {"kl",
                                                 "reverse-kl",
                                                 "jeffreys",
                                                 "symmetric-kl:0.3",
                                                 "js",
                                                 "js:0.1",
                                                 "skew-kl:0.1",
                                                 "skew-kl:0.7",
                                                 "skew-reverse-kl:0.1",
                                                 "alpha:0.5",
                                                 "alpha:-1.5",
                                                 "alpha:2",
                                                 "alpha:0.999",
                                                 "amari:0.3",
                                                 "cressie-read",
                                                 "chi2",
                                                 "neyman-chi2",
                                                 "hellinger",
                                                 "tv",
                                                 "le-cam",
                                                 "renyi:2",
                                                 "renyi:0.4",
                                                 "tsallis:1.5",
                                                 "bhattacharyya",
                                                 "cauchy-schwarz",
                                                 "density-power:0.5",
                                                 "gamma:0.5",
                                                 "bregman:squared",
                                                 "bregman:negative-entropy",
                                                 "bregman:itakura-saito",
                                                 "wasserstein-1"};
  return names;
}

/// sum over all statistics of fixed random weights times them.
HeadStatistics random_weights(const HeadStatistics& s, int64_t seed) {
  HeadStatistics w = s;
  w.top_ids = Tensor();
  const auto draw = [&](Tensor& t) {
    if (t.defined()) t = normal(t.sizes(), at::kDouble, seed++);
  };
  draw(w.logps);
  draw(w.logsumexp);
  draw(w.entropy);
  draw(w.expected);
  draw(w.top_logps);
  for (Tensor& d : w.divergences) draw(d);
  return w;
}

Tensor weighted(const HeadStatistics& s, const HeadStatistics& w) {
  Tensor sum = at::zeros({}, at::kDouble);
  const auto add = [&](const Tensor& t, const Tensor& by) {
    if (t.defined() && by.defined()) sum = sum + (t.to(at::kDouble) * by).sum();
  };
  add(s.logps, w.logps);
  add(s.logsumexp, w.logsumexp);
  add(s.entropy, w.entropy);
  add(s.expected, w.expected);
  add(s.top_logps, w.top_logps);
  for (size_t i = 0; i < s.divergences.size(); ++i) add(s.divergences[i], w.divergences[i]);
  return sum;
}

struct Case {
  Rows policy, reference;
  HeadRequest request;
};

Case full_case(at::ScalarType type, int64_t n = 5, int64_t v = 19) {
  Case c;
  c.policy = {normal({n, 4}, type, 1), normal({v + 3, 4}, type, 2), normal({v + 3}, type, 3), 0.8, 5.0, v};
  c.reference = {normal({n, 6}, type, 4), normal({v + 1, 6}, type, 5), {}, 1.3, 0.0, v};
  c.request.labels = at::arange(n, at::kLong) * 3 % v;
  c.request.labels[0] = -100;
  c.request.logps = c.request.logsumexp = c.request.entropy = true;
  c.request.scores = normal({v}, type, 6);
  c.request.top_k = std::min<int64_t>(3, v);
  return c;
}

Tensor logits_of(const Rows& r) {
  Tensor z = at::matmul(r.hidden, r.weight.t());
  if (r.bias.defined()) z = z + r.bias;
  if (r.softcap > 0) z = r.softcap * at::tanh(z / r.softcap);
  return (z / r.temperature).narrow(1, 0, r.vocabulary);
}

TEST(Head, StatisticsAgreeWithPlainTensors) {
  const Case c = full_case(at::kDouble);
  const HeadStatistics s = head_statistics(c.policy, c.request);
  const Tensor lq = at::log_softmax(logits_of(c.policy), 1);
  const Tensor counted = (c.request.labels >= 0).to(at::kDouble);
  EXPECT_LT(largest_difference(s.logps, lq.gather(1, c.request.labels.clamp_min(0).unsqueeze(1)).squeeze(1) * counted),
            1e-13);
  EXPECT_LT(largest_difference(s.logsumexp, logits_of(c.policy).logsumexp(1)), 1e-13);
  EXPECT_LT(largest_difference(s.entropy, -(lq.exp() * lq).sum(1)), 1e-13);
  EXPECT_LT(largest_difference(s.expected, lq.exp().matmul(c.request.scores)), 1e-13);
  const auto [top, ids] = lq.topk(3, 1);
  EXPECT_TRUE(s.top_ids.equal(ids));
  EXPECT_LT(largest_difference(s.top_logps, top), 1e-13);
  EXPECT_EQ(s.logps[0].item<double>(), 0);
}

class EachDivergence : public testing::TestWithParam<std::string> {};

TEST_P(EachDivergence, GradientIsThatOfFiniteDifferences) {
  for (const Direction direction : {Direction::from_policy, Direction::from_reference}) {
    Case c = full_case(at::kDouble);
    c.request.divergences = {{divergence(GetParam()), direction}};
    for (Tensor* t : {&c.policy.hidden, &c.policy.weight, &c.policy.bias}) t->requires_grad_(true);
    const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
    const HeadStatistics w = random_weights(s, 10);
    weighted(s, w).backward();
    for (Tensor* t : {&c.policy.hidden, &c.policy.weight, &c.policy.bias}) {
      const Tensor gradient = t->grad();
      const at::NoGradGuard no_gradient;
      const Tensor flat = t->detach().view(-1);
      for (int64_t i = 0; i < flat.numel(); i += 7) {
        const double x = flat[i].item<double>(), h = 1e-5;
        const auto at_shifted = [&](double to) {
          flat[i] = to;
          return weighted(head_statistics(c.policy, c.reference, c.request), w).item<double>();
        };
        const double slope = (at_shifted(x + h) - at_shifted(x - h)) / (2 * h);
        flat[i] = x;
        EXPECT_NEAR(gradient.view(-1)[i].item<double>(), slope, 2e-7 * std::max(1.0, std::abs(slope))) << i;
      }
    }
  }
}

TEST_P(EachDivergence, AllPathsGiveTheSameGradient) {
  for (const Direction direction : {Direction::from_policy, Direction::from_reference}) {
    Case c = full_case(at::kDouble, 40, 33);
    c.request.divergences = {{divergence(GetParam()), direction}};
    for (Tensor* t : {&c.policy.hidden, &c.policy.weight, &c.policy.bias}) t->requires_grad_(true);
    const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
    const HeadStatistics w = random_weights(s, 10);
    const Tensor loss = weighted(s, w);
    const auto by_recomputing = torch::autograd::grad({loss}, {c.policy.hidden, c.policy.weight, c.policy.bias});

    const HeadLoss known = head_loss(c.policy, c.reference, c.request, w);
    EXPECT_NEAR(known.loss.item<double>(), loss.item<double>(), 1e-12 * std::max(1.0, std::abs(loss.item<double>())));
    const auto in_one_walk = torch::autograd::grad({known.loss * 2}, {c.policy.hidden, c.policy.weight, c.policy.bias});
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(largest_difference(in_one_walk[i], by_recomputing[i] * 2), 1e-12) << i;

    // A frozen head: the divergence and one statistic more still fit the kept basis.
    Case frozen = full_case(at::kDouble, 40, 33);
    frozen.policy.hidden.requires_grad_(true);
    frozen.request = {};
    frozen.request.labels = c.request.labels;
    frozen.request.logps = true;
    frozen.request.divergences = c.request.divergences;
    HeadStatistics w2;
    w2.logps = w.logps;
    w2.divergences = w.divergences;
    const auto by_basis = torch::autograd::grad(
        {weighted(head_statistics(frozen.policy, frozen.reference, frozen.request), w2)}, {frozen.policy.hidden});
    const auto by_loss = torch::autograd::grad({head_loss(frozen.policy, frozen.reference, frozen.request, w2).loss},
                                               {frozen.policy.hidden});
    EXPECT_LT(largest_difference(by_basis[0], by_loss[0]), 1e-12);

    // Logits as they stand.
    Case given = full_case(at::kDouble, 40, 33);
    Rows logits;
    logits.hidden = at::matmul(c.policy.hidden, c.policy.weight.t()) + c.policy.bias;
    logits.temperature = c.policy.temperature;
    logits.softcap = c.policy.softcap;
    logits.vocabulary = 33;
    const auto by_logits = torch::autograd::grad({weighted(head_statistics(logits, c.reference, c.request), w)},
                                                 {c.policy.hidden, c.policy.weight, c.policy.bias});
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(largest_difference(by_logits[i], by_recomputing[i]), 1e-12) << i;
  }
}

TEST_P(EachDivergence, Float32IsCloseToFloat64) {
  const Divergence d = divergence(GetParam());
  for (const int64_t v : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000}) {
    for (const double spread : {1e-6, 1e-3, 1.0, 4.0, 30.0, 1e4}) {
      Rows policy, reference;
      policy.hidden = normal({3, v}, at::kFloat, v) * spread;
      reference.hidden = normal({3, v}, at::kFloat, v + 1) * spread;
      reference.hidden[2] = policy.hidden[2] + 1e-3 * reference.hidden[2];
      HeadRequest request;
      request.divergences = {d.from_reference(), d.from_policy()};
      const HeadStatistics s = head_statistics(policy, reference, request);
      for (int64_t t = 0; t < 3; ++t) {
        const double there = between_rows(d, reference.hidden[t], policy.hidden[t]);
        const double back = between_rows(d, policy.hidden[t], reference.hidden[t]);
        const double ours[2] = {s.divergences[0][t].item<double>(), s.divergences[1][t].item<double>()};
        for (const auto& [got, right] : {std::pair{ours[0], there}, std::pair{ours[1], back}}) {
          if (right > 3e37) {
            EXPECT_GT(got, 1e30);
            continue;
          }
          EXPECT_NEAR(got, right, 1e-7 + 3e-6 * right) << "V " << v << ", spread " << spread << ", row " << t;
          EXPECT_GE(got, 0);
        }
      }
    }
  }
}

TEST_P(EachDivergence, MinusInfinityIsExact) {
  const Divergence d = divergence(GetParam());
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t v : {3, 8, 17, 40}) {
      Rows policy, reference;
      policy.hidden = normal({4, v}, type, 1);
      reference.hidden = normal({4, v}, type, 2);
      policy.hidden.select(1, 0).fill_(-kInfinity);  // both
      reference.hidden.select(1, 0).fill_(-kInfinity);
      policy.hidden[1][1] = -kInfinity;  // only the policy's
      reference.hidden[2][2] = -kInfinity;
      policy.hidden[3].slice(0, 1, v - 1).fill_(-kInfinity);  // one-hot
      policy.hidden.requires_grad_(true);
      HeadRequest request;
      request.divergences = {d.from_reference(), d.from_policy()};
      const HeadStatistics s = head_statistics(policy, reference, request);
      for (int64_t t = 0; t < 4; ++t) {
        const double right[2] = {between_rows(d, reference.hidden[t], policy.hidden[t]),
                                 between_rows(d, policy.hidden[t], reference.hidden[t])};
        for (int way = 0; way < 2; ++way) {
          const double got = s.divergences[way][t].item<double>();
          if (std::isinf(right[way])) {
            EXPECT_EQ(got, right[way]);
          } else {
            const double tolerance = type == at::kFloat ? 1e-7 + 3e-6 * right[way] : 1e-12 * std::max(1.0, right[way]);
            EXPECT_NEAR(got, right[way], tolerance) << v << ", row " << t;
          }
        }
      }
      at::where(at::isfinite(s.divergences[0]), s.divergences[0], 0).sum().backward();
      EXPECT_TRUE(at::isfinite(policy.hidden.grad()).all().item<bool>());
      EXPECT_EQ(policy.hidden.grad().select(1, 0).abs().max().item<double>(), 0);  // exactly
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachDivergence, testing::ValuesIn(all_names()), [](const auto& that) {
  std::string name = that.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Head, BlocksAndPaddingDoNotMatter) {
  // 16 MiB hold few of these rows at once, so that N = 45 takes several uneven blocks.
  const int64_t n = 45, v = 49152;
  Case c;
  c.policy.hidden = normal({n, 8}, at::kFloat, 1);
  c.policy.weight = normal({v + 64, 8}, at::kFloat, 2);
  c.policy.weight.narrow(0, v, 64).fill_(1e30);  // padding that would win every row
  c.policy.vocabulary = v;
  c.reference.hidden = normal({n, 5}, at::kFloat, 3);
  c.reference.weight = normal({v, 5}, at::kFloat, 4);
  c.request.labels = at::arange(n, at::kLong) * 1000;
  c.request.labels[7] = -100;
  c.request.logps = true;
  c.request.divergences = {divergence("kl").from_reference(), divergence("js").from_policy()};
  for (Tensor* t : {&c.policy.hidden, &c.policy.weight}) t->requires_grad_(true);
  HeadStatistics w;
  w.logps = normal({n}, at::kDouble, 5);
  w.divergences = {normal({n}, at::kDouble, 6), normal({n}, at::kDouble, 7)};
  HeadSettings small;
  small.memory = 16 << 20;
  const auto gradients_of = [&](const HeadSettings& settings) {
    const HeadLoss loss = head_loss(c.policy, c.reference, c.request, w, settings);
    auto g = torch::autograd::grad({loss.loss}, {c.policy.hidden, c.policy.weight});
    g.push_back(loss.loss.detach());
    return g;
  };
  const auto in_blocks = gradients_of(small), at_once = gradients_of({});
  for (size_t i = 0; i < 3; ++i) EXPECT_LT(largest_difference(in_blocks[i], at_once[i]), 2e-5) << i;
  EXPECT_EQ(at_once[1].narrow(0, v, 64).abs().max().item<double>(), 0);
  const auto again = gradients_of(small);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(in_blocks[i].equal(again[i])) << "two runs differ in " << i;
  const HeadStatistics s = head_statistics(c.policy, c.reference, c.request, small);
  const auto by_recomputing = torch::autograd::grad({weighted(s, w)}, {c.policy.hidden, c.policy.weight});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(by_recomputing[i], at_once[i]), 2e-5) << i;
}

TEST(Head, ALossMayBeDifferentiatedAgain) {
  Case c = full_case(at::kDouble);
  c.policy.hidden.requires_grad_(true);
  HeadStatistics w;
  w.entropy = at::ones({5}, at::kDouble);
  const Tensor loss = head_loss(c.policy, c.request, w).loss;
  const auto first = torch::autograd::grad({loss}, {c.policy.hidden}, {}, true);
  const auto second = torch::autograd::grad({loss}, {c.policy.hidden});
  EXPECT_LT(largest_difference(second[0], first[0]), 1e-14);
}

TEST(Head, Bfloat16RowsAreComputedInFloat32) {
  Case c = full_case(at::kBFloat16, 6, 40);
  c.request.divergences = {divergence("kl").from_reference()};
  Case exact = c;
  for (Rows* r : {&exact.policy, &exact.reference}) {
    r->hidden = r->hidden.to(at::kFloat);
    r->weight = r->weight.to(at::kFloat);
    if (r->bias.defined()) r->bias = r->bias.to(at::kFloat);
  }
  for (Case* one : {&c, &exact}) {
    one->policy.hidden.requires_grad_(true);
    one->policy.weight.requires_grad_(true);
  }
  const HeadStatistics s = head_statistics(c.policy, c.reference, c.request),
                       e = head_statistics(exact.policy, exact.reference, exact.request);
  EXPECT_LT(largest_difference(s.divergences[0], e.divergences[0]), 1e-5);
  EXPECT_LT(largest_difference(s.logps, e.logps), 1e-5);
  const HeadStatistics w = random_weights(s, 3);
  weighted(s, w).backward();
  weighted(e, w).backward();
  EXPECT_EQ(c.policy.hidden.grad().scalar_type(), at::kBFloat16);
  EXPECT_LT(largest_difference(c.policy.hidden.grad(), exact.policy.hidden.grad()), 1e-2);
  EXPECT_LT(largest_difference(c.policy.weight.grad(), exact.policy.weight.grad()), 1e-2);
}

TEST(Head, TiesGoToTheSmallerId) {
  Rows rows;
  rows.hidden = at::tensor({1.0, 3.0, 3.0, 2.0, 3.0}, at::kDouble).view({1, 5});
  HeadRequest request;
  request.top_k = 4;
  EXPECT_TRUE(head_statistics(rows, request).top_ids.equal(at::tensor({1, 2, 4, 3}, at::kLong).view({1, 4})));
}

TEST(Head, NanStaysInItsRow) {
  Rows policy, reference;
  policy.hidden = normal({3, 20}, at::kFloat, 1);
  reference.hidden = normal({3, 20}, at::kFloat, 2);
  policy.hidden[1][5] = std::nan("");
  policy.hidden.requires_grad_(true);
  HeadRequest request;
  request.labels = at::tensor({1, -100, 2}, at::kLong);
  request.logps = request.entropy = true;
  request.divergences = {divergence("kl").from_reference()};
  const HeadStatistics s = head_statistics(policy, reference, request);
  EXPECT_EQ(s.logps[1].item<double>(), 0);
  EXPECT_TRUE(std::isnan(s.entropy[1].item<double>()) && std::isnan(s.divergences[0][1].item<double>()));
  EXPECT_FALSE(std::isnan(s.divergences[0][0].item<double>()) || std::isnan(s.entropy[2].item<double>()));
  s.logps.sum().backward();  // the bad row's label is ignored
  EXPECT_TRUE(at::isfinite(policy.hidden.grad()).all().item<bool>());
}

TEST(Head, NoTokensAreFine) {
  Case c = full_case(at::kFloat, 5, 19);
  c.policy.hidden = c.policy.hidden.narrow(0, 0, 0).clone().requires_grad_(true);
  c.policy.weight.requires_grad_(true);
  c.request = {};
  c.request.labels = at::zeros({0}, at::kLong);
  c.request.logps = true;
  HeadStatistics w;
  w.logps = at::zeros({0}, at::kDouble);
  const HeadLoss loss = head_loss(c.policy, c.request, w);
  loss.loss.backward();
  EXPECT_EQ(loss.loss.item<double>(), 0);
  EXPECT_EQ(c.policy.weight.grad().abs().max().item<double>(), 0);
}

TEST(Head, BadInputIsNamed) {
  const auto message = [](auto spoil) {
    Case c = full_case(at::kFloat);
    c.request.divergences = {divergence("kl").from_reference()};
    HeadSettings settings;
    spoil(c, settings);
    return message_of([&] { head_statistics(c.policy, c.reference, c.request, settings); });
  };
  EXPECT_EQ(message([](Case&, HeadSettings&) {}), "no error");
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.policy.weight = c.policy.weight.narrow(1, 0, 3); }),
              testing::HasSubstr("policy's head has shape 22x3"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.reference.vocabulary = 18; }),
              testing::HasSubstr("vocabulary is 19 and the reference's 18"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.request.labels[1] = 19; }),
              testing::HasSubstr("label 19 of token 1"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.request.scores = at::zeros({3}); }), testing::HasSubstr("scores"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.policy.temperature = 0; }),
              testing::HasSubstr("temperature is 0"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.reference.hidden = c.reference.hidden.to(at::kDouble); }),
              testing::HasSubstr("type"));
  EXPECT_THAT(message([](Case& c, HeadSettings&) { c.request.top_k = 20; }), testing::HasSubstr("top_k is 20"));
  EXPECT_THAT(message([](Case&, HeadSettings& s) { s.memory = 1 << 20; }), testing::HasSubstr("16 MiB"));
  Case c = full_case(at::kFloat);
  HeadStatistics w;
  w.logps = at::zeros({4});
  EXPECT_THAT(message_of([&] { head_loss(c.policy, c.request, w); }),
              testing::HasSubstr("weight of logps has shape 4 and must have 5"));
}

}  // namespace
}  // namespace kullback::test
