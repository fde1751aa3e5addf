// Float32 rows against float64 ones, over sizes, spreads and extremes; and that nothing depends on blocks, threads or chance.
#include <cmath>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/divergence/head.h"
#include "kullback/divergence/rows_test.h"

namespace kullback::test {
namespace {

using at::Tensor;

/// Expects |got - right| <= 1e-7 + 3e-6 |right| everywhere.
void expect_close(const Tensor& got, const Tensor& right, const std::string& what) {
  const Tensor excess = (got.to(at::kDouble) - right).abs() - (1e-7 + 3e-6 * right.abs());
  EXPECT_LE(excess.max().item<double>(), 0) << what << ": " << got << " should be " << right;
}

/// Rows of logits: a normal law's, a uniform one's between extremes, equal ones, and one far above the rest.
Tensor rows_of(int64_t vocabulary, double spread, int64_t seed) {
  Tensor rows = normal({4, vocabulary}, at::kFloat, seed) * spread;
  rows[1] = (at::rand({vocabulary}, at::detail::createCPUGenerator(seed)) * 2 - 1) * spread;
  rows[2].fill_(spread);
  rows[3][vocabulary / 2] += 1e4;
  return rows.clamp_(-1e4, 1e4);
}

void check_statistics_of_one_row(int64_t vocabulary) {
  for (const double spread : {1e-6, 1e-3, 1.0, 30.0, 1e3, 1e4}) {
    Rows rows;
    rows.hidden = rows_of(vocabulary, spread, vocabulary);
    HeadRequest request;
    request.labels = at::tensor({vocabulary - 1, vocabulary / 2, int64_t{0}, vocabulary / 3}, at::kLong);
    request.logps = request.logsumexp = request.entropy = true;
    request.scores = normal({vocabulary}, at::kFloat, 3);
    request.top_k = std::min<int64_t>(vocabulary, 5);
    const HeadStatistics s = head_statistics(rows, request);
    const Tensor z = rows.hidden.to(at::kDouble), lq = at::log_softmax(z, 1);
    const std::string where = fmt::format(" of {} logits spread over {}", vocabulary, spread);
    expect_close(s.logps, lq.gather(1, request.labels.unsqueeze(1)).squeeze(1), "logps" + where);
    expect_close(s.logsumexp, z.logsumexp(1), "logsumexp" + where);
    expect_close(s.entropy, -(lq.exp() * lq).sum(1), "entropy" + where);
    expect_close(s.top_logps, std::get<0>(lq.topk(request.top_k, 1)), "top logps" + where);
    // Scores have either sign: what is relative is the sum of their magnitudes.
    const Tensor magnitude = lq.exp().matmul(request.scores.to(at::kDouble).abs());
    const Tensor error = (s.expected.to(at::kDouble) - lq.exp().matmul(request.scores.to(at::kDouble))).abs();
    EXPECT_LE((error - 1e-7 - 3e-6 * magnitude).max().item<double>(), 0) << "expected score" << where;
  }
}

TEST(HeadAccuracy, StatisticsOfOneRow) {
  for (const int64_t vocabulary : sizes()) check_statistics_of_one_row(vocabulary);
}

TEST(HeadAccuracy, StatisticsOfOneLargeRow) { check_statistics_of_one_row(49152); }

void check_divergence(const DivergenceInfo& info, int64_t vocabulary) {
  const Divergence d = divergence(info.name);
  for (const double spread : {1e-6, 1e-2, 1.0, 30.0, 1e4}) {
    Rows policy, reference;
    policy.hidden = rows_of(vocabulary, spread, vocabulary);
    reference.hidden = rows_of(vocabulary, spread, vocabulary + 1);
    reference.hidden[0] = policy.hidden[0] + 1e-3 * reference.hidden[0];
    HeadRequest request;
    request.divergences = {d.from_reference(), d.from_policy()};
    const HeadStatistics s = head_statistics(policy, reference, request);
    for (int64_t t = 0; t < 4; ++t) {
      const double right[2] = {between_rows(d, reference.hidden[t], policy.hidden[t]),
                               between_rows(d, policy.hidden[t], reference.hidden[t])};
      for (size_t way = 0; way < 2; ++way) {
        const double got = s.divergences[way][t].item<double>();
        if (right[way] > 3e37) {  // beyond float32
          EXPECT_GT(got, 1e30) << info.name;
          continue;
        }
        EXPECT_NEAR(got, right[way], 1e-7 + 3e-6 * right[way])
            << info.name << " of " << vocabulary << " logits spread over " << spread << ", row " << t;
      }
    }
  }
}

TEST(HeadAccuracy, EveryDivergence) {
  for (const DivergenceInfo& info : known_divergences()) {
    for (const int64_t vocabulary : sizes()) check_divergence(info, vocabulary);
  }
}

TEST(HeadAccuracySlow, EveryDivergenceOfLargeRows) {
  for (const DivergenceInfo& info : known_divergences()) check_divergence(info, 49152);
}

struct Work {
  Rows policy, reference;
  HeadRequest request;
  HeadStatistics weights;
};

/// Student and teacher of different widths, with gradients wanted.
Work work_of(int64_t tokens, int64_t vocabulary, at::ScalarType type, const std::vector<std::string>& names) {
  Work w;
  w.policy.hidden = normal({tokens, 8}, type, 1).requires_grad_(true);
  w.policy.weight = normal({vocabulary, 8}, type, 2).requires_grad_(true);
  w.reference.hidden = normal({tokens, 5}, type, 3);
  w.reference.weight = normal({vocabulary, 5}, type, 4);
  for (size_t i = 0; i < names.size(); ++i) {
    w.request.divergences.push_back(divergence(names[i]).from_reference());
    w.weights.divergences.push_back(normal({tokens}, at::kDouble, 5 + static_cast<int64_t>(i)));
  }
  return w;
}

/// Loss and gradients where the weights are known before the walk, or after it.
std::vector<Tensor> results(const Work& w, bool known, const HeadSettings& settings = {}) {
  Tensor loss;
  if (known) {
    loss = head_loss(w.policy, w.reference, w.request, w.weights, settings).loss;
  } else {
    loss = at::zeros({}, at::kDouble);
    const HeadStatistics s = head_statistics(w.policy, w.reference, w.request, settings);
    for (size_t i = 0; i < s.divergences.size(); ++i)
      loss = loss + (s.divergences[i].to(at::kDouble) * w.weights.divergences[i]).sum();
  }
  std::vector<Tensor> inputs;
  for (const Tensor& t : {w.policy.hidden, w.policy.weight}) {
    if (t.requires_grad()) inputs.push_back(t);
  }
  std::vector<Tensor> all = torch::autograd::grad({loss}, inputs);
  all.push_back(loss.detach());
  return all;
}

TEST(HeadAccuracy, AnyNumberOfTokens) {
  std::vector<int64_t> numbers = sizes();
  numbers.push_back(0);
  for (const int64_t tokens : numbers) {
    const Work exact = work_of(tokens, 33, at::kDouble, {"kl", "js"});
    Work w = work_of(tokens, 33, at::kFloat, {"kl", "js"});
    const std::vector<Tensor> right = results(exact, true);
    for (const bool known : {true, false}) {
      const std::vector<Tensor> got = results(w, known);
      for (size_t i = 0; i < right.size(); ++i) {
        if (right[i].numel() > 0) {
          EXPECT_LT(largest_difference(got[i], right[i]), 1e-4) << tokens << " tokens, " << i;
        }
      }
    }
  }
}

TEST(HeadAccuracy, OneDivergenceInBlocks) {
  // 16 MiB hold less than 100 of these rows, of which the walk back finds some kept.
  HeadSettings small;
  small.memory = 16 << 20;
  for (const char* name : {"kl", "js", "alpha:0.5", "alpha:1.1", "renyi:2"}) {
    Work w = work_of(151, 49152, at::kFloat, {name});
    w.weights.divergences[0][3] = 0;
    w.weights.divergences[0][150] = 0;
    const std::vector<Tensor> known = results(w, true);
    for (const auto& got : {results(w, false), results(w, false, small), results(w, true, small)}) {
      for (size_t i = 0; i < known.size(); ++i) EXPECT_LT(largest_difference(got[i], known[i]), 2e-5) << name << i;
    }
    // And once more through a graph that was kept.
    const HeadStatistics s = head_statistics(w.policy, w.reference, w.request, small);
    const Tensor loss = (s.divergences[0].to(at::kDouble) * w.weights.divergences[0]).sum();
    const auto first = torch::autograd::grad({loss}, {w.policy.weight}, {}, true);
    const auto second = torch::autograd::grad({loss}, {w.policy.weight});
    EXPECT_LT(largest_difference(first[0], known[1]), 2e-5) << name;
    EXPECT_LT(largest_difference(second[0], known[1]), 2e-5) << name;
    w.policy.weight.requires_grad_(false);
    const std::vector<Tensor> frozen = results(w, false, small);
    EXPECT_LT(largest_difference(frozen[0], known[0]), 2e-5) << name;
  }
}

TEST(HeadAccuracy, TheSameBitsAtOneThreadCount) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const bool known : {true, false}) {
      const Work w = work_of(70, 5000, at::kFloat, {"js"});
      const std::vector<Tensor> once = results(w, known), again = results(w, known);
      for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(again[i])) << threads << " threads, " << i;
    }
  }
  at::set_num_threads(before);
}

TEST(HeadAccuracy, Bfloat16InTilesAndBlocks) {
  HeadSettings small;
  small.memory = 16 << 20;
  const Work w = work_of(90, 49152, at::kBFloat16, {"kl"});
  Work exact = work_of(90, 49152, at::kFloat, {"kl"});
  exact.policy.hidden = w.policy.hidden.detach().to(at::kFloat).requires_grad_(true);
  exact.policy.weight = w.policy.weight.detach().to(at::kFloat).requires_grad_(true);
  exact.reference.hidden = w.reference.hidden.to(at::kFloat);
  exact.reference.weight = w.reference.weight.to(at::kFloat);
  const std::vector<Tensor> right = results(exact, true);
  for (const bool known : {true, false}) {
    for (const HeadSettings& settings : {HeadSettings{}, small}) {
      const std::vector<Tensor> got = results(w, known, settings);
      EXPECT_EQ(got[0].scalar_type(), at::kBFloat16);
      EXPECT_EQ(got[1].scalar_type(), at::kBFloat16);
      for (size_t i = 0; i < 2; ++i) EXPECT_LT(largest_difference(got[i], right[i]), 1e-2) << i;
      EXPECT_LT(largest_difference(got[2], right[2]), 1e-5);
    }
  }
}

}  // namespace
}  // namespace kullback::test
