#include "kullback/divergence/head.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/divergence/between_vectors.h"
#include "kullback/divergence/row_kernels.h"

namespace kullback {
namespace {

using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = {
      "kl", "reverse-kl", "jeffreys", "symmetric-kl:0.3", "js", "js:0.1", "skew-kl:0.1", "skew-kl:0.7", "skew-reverse-kl:0.1", "alpha:0.5",
      "alpha:-1.5", "alpha:2", "alpha:0.999", "amari:0.3", "cressie-read", "chi2", "neyman-chi2", "hellinger", "tv", "le-cam", "renyi:2",
      "renyi:0.4", "tsallis:1.5", "bhattacharyya", "cauchy-schwarz", "density-power:0.5", "gamma:0.5", "bregman:squared",
      "bregman:negative-entropy", "bregman:itakura-saito", "wasserstein-1"};
  return names;
}

Tensor normal(at::IntArrayRef shape, at::ScalarType type, int64_t seed = 1) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble)).to(type);
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

double largest_difference(const Tensor& a, const Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / b.to(at::kDouble).abs().clamp_min(1)).max().item<double>();
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
  EXPECT_LT(largest_difference(s.logps, lq.gather(1, c.request.labels.clamp_min(0).unsqueeze(1)).squeeze(1) * counted), 1e-13);
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
    const auto by_basis = torch::autograd::grad({weighted(head_statistics(frozen.policy, frozen.reference, frozen.request), w2)}, {frozen.policy.hidden});
    const auto by_loss = torch::autograd::grad({head_loss(frozen.policy, frozen.reference, frozen.request, w2).loss}, {frozen.policy.hidden});
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

/// D(p||q) in float64 from the definition, through another path than the kernels where there is one.
double oracle(const std::string& name, const Tensor& a, const Tensor& z) {
  const Divergence d = divergence(name);
  const Tensor x = a.to(at::kDouble).contiguous(), y = z.to(at::kDouble).contiguous();
  return between_logits(d, {x.const_data_ptr<double>(), static_cast<size_t>(x.numel())}, {y.const_data_ptr<double>(), static_cast<size_t>(y.numel())});
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
        const double there = oracle(GetParam(), reference.hidden[t], policy.hidden[t]);
        const double back = oracle(GetParam(), policy.hidden[t], reference.hidden[t]);
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

INSTANTIATE_TEST_SUITE_P(All, EachDivergence, testing::ValuesIn(all_names()),
                         [](const auto& that) {
                           std::string name = that.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace kullback
