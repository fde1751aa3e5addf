// Two vocabularies of different sizes.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/divergence/head.h"
#include "kullback/divergence/rows_test.h"

namespace kullback::test {
namespace {

using at::Tensor;
using enum UnequalVocabularies;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  Rows policy, reference;
  HeadRequest request;
};

Case case_of(int64_t ours, int64_t theirs, UnequalVocabularies unequal, const char* name,
             at::ScalarType type = at::kDouble) {
  Case c;
  c.policy.hidden = normal({6, 4}, type, 1);
  c.policy.weight = normal({ours, 4}, type, 2);
  c.policy.bias = normal({ours}, type, 3);
  c.reference.hidden = normal({6, 3}, type, 4);
  c.reference.weight = normal({theirs, 3}, type, 5);
  c.request.divergences = {divergence(name).from_reference(), divergence(name).from_policy()};
  c.request.unequal = unequal;
  return c;
}

Tensor policy_logits(const Case& c) { return at::matmul(c.policy.hidden, c.policy.weight.t()) + c.policy.bias; }
Tensor reference_logits(const Case& c) { return at::matmul(c.reference.hidden, c.reference.weight.t()); }

Tensor widened(const Tensor& logits, int64_t width) {
  return at::constant_pad_nd(logits, {0, width - logits.size(1)}, -kInfinity);
}

const std::vector<std::pair<int64_t, int64_t>> kSizes = {{9, 14}, {14, 9}, {33, 32}, {1, 3}};

TEST(UnequalVocabularies, AreRefusedUnlessToldHow) {
  const Case c = case_of(9, 14, refuse, "kl");
  EXPECT_THAT(
      message_of([&] { head_statistics(c.policy, c.reference, c.request); }),
      testing::AllOf(testing::HasSubstr("vocabulary is 9 and the reference's 14"), testing::HasSubstr("`unequal`")));
}

TEST(UnequalVocabularies, RenormalisedAreThoseOfTheCommonPrefix) {
  for (const auto& [ours, theirs] : kSizes) {
    for (const char* name : {"kl", "js", "renyi:2"}) {
      Case c = case_of(ours, theirs, renormalise, name);
      c.request.entropy = true;
      const int64_t common = std::min(ours, theirs);
      const Tensor z = policy_logits(c).narrow(1, 0, common), a = reference_logits(c).narrow(1, 0, common);
      const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
      for (int64_t t = 0; t < 6; ++t) {
        EXPECT_NEAR(s.divergences[0][t].item<double>(), between_rows(divergence(name), a[t], z[t]), 1e-12);
        EXPECT_NEAR(s.divergences[1][t].item<double>(), between_rows(divergence(name), z[t], a[t]), 1e-12);
      }
      const Tensor lq = at::log_softmax(z, 1);
      EXPECT_LT(largest_difference(s.entropy, -(lq.exp() * lq).sum(1)), 1e-12);
    }
  }
}

TEST(UnequalVocabularies, WholeOnesGiveOtherTokensProbabilityZero) {
  for (const auto& [ours, theirs] : kSizes) {
    for (const DivergenceInfo& info : known_divergences()) {
      Case c = case_of(ours, theirs, whole, info.name.c_str());
      c.request.logps = true;
      c.request.labels = at::zeros({6}, at::kLong);
      const int64_t width = std::max(ours, theirs);
      const Tensor z = widened(policy_logits(c), width), a = widened(reference_logits(c), width);
      const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
      for (int64_t t = 0; t < 6; ++t) {
        const double right[2] = {between_rows(divergence(info.name), a[t], z[t]),
                                 between_rows(divergence(info.name), z[t], a[t])};
        for (size_t way = 0; way < 2; ++way) {
          const double got = s.divergences[way][t].item<double>();
          if (std::isinf(right[way])) {
            EXPECT_EQ(got, right[way]) << info.name;
          } else {
            EXPECT_NEAR(got, right[way], 1e-12 * std::max(1.0, right[way])) << info.name;
          }
        }
      }
      EXPECT_LT(largest_difference(s.logps, at::log_softmax(policy_logits(c), 1).select(1, 0)), 1e-12);
    }
  }
}

TEST(UnequalVocabularies, APrefixIsSummedWithoutNormalisingAnew) {
  const char* names[] = {"kl", "reverse-kl", "js", "skew-kl", "alpha:0.5", "alpha:0.999", "tv", "chi2", "hellinger"};
  for (const auto& [ours, theirs] : kSizes) {
    for (const char* name : names) {
      const Case c = case_of(ours, theirs, prefix, name);
      const int64_t common = std::min(ours, theirs);
      const Tensor lq = at::log_softmax(policy_logits(c), 1).narrow(1, 0, common);
      const Tensor lp = at::log_softmax(reference_logits(c), 1).narrow(1, 0, common);
      const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
      const Divergence owner = divergence(name);  // the generator lives in it
      const Generator& f = owner.generator();
      for (int64_t t = 0; t < 6; ++t) {
        double there = 0, back = 0;
        for (int64_t j = 0; j < common; ++j) {
          const double p = std::exp(lp[t][j].item<double>()), q = std::exp(lq[t][j].item<double>());
          there += q * f.value(p / q) - f.derivative(1) * (p - q);
          back += p * f.value(q / p) - f.derivative(1) * (q - p);
        }
        EXPECT_NEAR(s.divergences[0][t].item<double>(), there, 1e-11 * std::max(1.0, there)) << name;
        EXPECT_NEAR(s.divergences[1][t].item<double>(), back, 1e-11 * std::max(1.0, back)) << name;
      }
    }
  }
  const Case c = case_of(9, 14, prefix, "renyi:2");
  EXPECT_THAT(message_of([&] { head_statistics(c.policy, c.reference, c.request); }),
              testing::HasSubstr("'renyi:2' has no generator"));
}

TEST(UnequalVocabularies, GradientsAreThoseOfFiniteDifferences) {
  for (const auto& [ours, theirs] : kSizes) {
    for (const UnequalVocabularies unequal : {renormalise, prefix, whole}) {
      for (const char* name : {"kl", "js", "alpha:0.999", "hellinger"}) {
        Case c = case_of(ours, theirs, unequal, name);
        c.request.divergences.pop_back();
        c.request.scores = normal({unequal == renormalise ? std::min(ours, theirs) : ours}, at::kDouble, 7);
        for (Tensor* t : {&c.policy.hidden, &c.policy.weight, &c.policy.bias}) t->requires_grad_(true);
        const Tensor weights = normal({6}, at::kDouble, 6);
        const auto loss_of = [&] {
          const HeadStatistics s = head_statistics(c.policy, c.reference, c.request);
          const Tensor finite = at::where(at::isfinite(s.divergences[0]), s.divergences[0], 0);
          return (weights * (finite + s.expected)).sum();
        };
        loss_of().backward();
        HeadStatistics known_weights;
        known_weights.expected = weights;
        known_weights.divergences = {weights};
        const auto known = torch::autograd::grad({head_loss(c.policy, c.reference, c.request, known_weights).loss},
                                                 {c.policy.hidden, c.policy.weight, c.policy.bias});
        size_t which = 0;
        for (Tensor* t : {&c.policy.hidden, &c.policy.weight, &c.policy.bias}) {
          EXPECT_LT(largest_difference(known[which++], t->grad()), 1e-11) << name;
          const at::NoGradGuard no_gradient;
          const Tensor flat = t->detach().view(-1);
          for (int64_t i = 0; i < flat.numel(); i += 5) {
            const double x = flat[i].item<double>(), h = 1e-5;
            const auto at_shifted = [&](double to) {
              flat[i] = to;
              return loss_of().item<double>();
            };
            const double slope = (at_shifted(x + h) - at_shifted(x - h)) / (2 * h);
            flat[i] = x;
            EXPECT_NEAR(t->grad().view(-1)[i].item<double>(), slope, 2e-7 * std::max(1.0, std::abs(slope)))
                << name << i;
          }
        }
      }
    }
  }
}

TEST(UnequalVocabularies, EveryWayGivesTheSameGradient) {
  for (const auto& [ours, theirs] : kSizes) {
    for (const UnequalVocabularies unequal : {renormalise, prefix, whole}) {
      Case c = case_of(ours, theirs, unequal, "js");
      c.request.divergences.pop_back();
      for (Tensor* t : {&c.policy.hidden, &c.policy.weight}) t->requires_grad_(true);
      HeadStatistics weights;
      weights.divergences = {normal({6}, at::kDouble, 6)};
      const auto gradient = [&](const Tensor& loss) { return torch::autograd::grad({loss}, {c.policy.hidden})[0]; };
      const auto loss = [&](const Rows& policy) {
        return (head_statistics(policy, c.reference, c.request).divergences[0] * weights.divergences[0]).sum();
      };
      const Tensor known = gradient(head_loss(c.policy, c.reference, c.request, weights).loss);
      EXPECT_LT(largest_difference(gradient(loss(c.policy)), known), 1e-12);
      Rows logits;
      logits.hidden = policy_logits(c);
      EXPECT_LT(largest_difference(gradient(loss(logits)), known), 1e-12);
      logits.hidden = policy_logits(c);
      EXPECT_LT(largest_difference(gradient(head_loss(logits, c.reference, c.request, weights).loss), known), 1e-12);
      Rows frozen = c.policy;
      frozen.weight = frozen.weight.detach();
      EXPECT_LT(largest_difference(gradient(loss(frozen)), known), 1e-12);
    }
  }
}

TEST(UnequalVocabularies, Float32TooAndAnUnusedReferenceIsNoError) {
  const Case c = case_of(14, 9, whole, "js", at::kFloat), exact = case_of(14, 9, whole, "js");
  EXPECT_LT(largest_difference(head_statistics(c.policy, c.reference, c.request).divergences[0],
                               head_statistics(exact.policy, exact.reference, exact.request).divergences[0]),
            1e-5);
  Case alone = case_of(14, 9, refuse, "js");
  alone.request.divergences.clear();
  alone.request.entropy = true;
  alone.policy.weight.requires_grad_(true);
  const Tensor entropy = head_statistics(alone.policy, alone.reference, alone.request).entropy;
  EXPECT_TRUE(entropy.equal(head_statistics(alone.policy, alone.request).entropy));
  entropy.sum().backward();
  EXPECT_TRUE(alone.policy.weight.grad().defined());
  alone.request.entropy = false;
  EXPECT_FALSE(head_statistics(alone.policy, alone.reference, alone.request).entropy.defined());
}

}  // namespace
}  // namespace kullback::test
