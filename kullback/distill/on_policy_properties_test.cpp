// What holds of the on-policy, pairwise and cross-tokenizer losses beyond the golden numbers: endpoints, masks, empty responses.
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/distill/distillm.h"
#include "kullback/distill/dpkd.h"
#include "kullback/distill/gkd.h"
#include "kullback/distill/minillm.h"
#include "kullback/distill/plad.h"
#include "kullback/distill/skd.h"
#include "kullback/train/rollouts.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

const double nan = std::numeric_limits<double>::quiet_NaN();

Tensor random_logits(at::IntArrayRef sizes, uint64_t seed) {
  RandomStream stream(seed, "on-policy properties");
  return 2 * normals(sizes, stream);
}

Tensor bools(std::vector<int64_t> values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kLong).reshape(sizes).to(at::kBool);
}

/// Two sequences of three places, of which the second has none that counts, NaN in both models where the mask is false.
struct Ragged {
  Tensor logits, mask = bools({1, 1, 0, 0, 0, 0}, {2, 3});
  Responses responses;
};
Ragged ragged_batch() {
  Ragged r;
  const Tensor counted = r.mask.reshape({6, 1});
  r.logits = at::where(counted, random_logits({6, 5}, 1), nan).requires_grad_(true);
  r.responses.student.hidden = r.logits;
  r.responses.teacher.hidden = at::where(counted, random_logits({6, 5}, 2), nan);
  r.responses.labels = at::tensor({3, 0, -7, -7, -7, -7}, at::kLong).reshape({2, 3});
  r.responses.mask = r.mask;
  return r;
}

/// The loss is finite, and so is its gradient, 0 where nothing counts.
void expect_masked(const Ragged& r, const Tensor& loss) {
  loss.backward();
  EXPECT_TRUE(std::isfinite(loss.item<double>()));
  const Tensor gradient = r.logits.grad();
  EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
  EXPECT_GT(gradient.narrow(0, 0, 2).abs().sum().item<double>(), 0);
  EXPECT_EQ(gradient.narrow(0, 2, 4).abs().sum().item<double>(), 0);
}

TEST(OnPolicyMasks, NothingIsReadWhereTheMaskIsFalse) {
  {
    const Ragged r = ragged_batch();
    const Tensor rewards = at::tensor({1.0, 0.0});
    expect_masked(
        r, gkd_loss(r.responses.student, r.responses.teacher, r.mask, {.gkd_alpha = 0.5}, r.responses.labels, rewards)
               .loss);
  }
  {
    const Ragged r = ragged_batch();
    expect_masked(r, distillm_loss(r.responses, {}, {.kd_ratio = 0.5}).loss);
    EXPECT_LE(largest_ratio(r.responses, {}).item<double>(), 10 * (1 + 1e-12));
  }
  {
    const Ragged r = ragged_batch();
    const Tensor numbers = at::where(r.mask, at::ones({2, 3}, at::kDouble), nan);
    const Tensor advantages = minillm_advantages(numbers, r.mask, {});
    expect_masked(r, minillm_loss(r.responses, advantages, -numbers, numbers, {}, {}).loss);
  }
  {
    const Ragged r = ragged_batch();
    expect_masked(r, dpkd_token_loss(r.responses.student, r.responses.teacher, r.mask, {}).loss);
  }
}

TEST(OnPolicyMasks, NothingToCountIsNothing) {
  Ragged r = ragged_batch();
  r.responses.mask = r.mask = at::zeros({2, 3}, at::kBool);
  const Responses& b = r.responses;
  for (const Tensor& loss : {gkd_loss(b.student, b.teacher, r.mask, {}).loss, distillm_loss(b, {}, {}).loss,
                             minillm_loss(b, at::zeros({2, 3}, at::kDouble), at::zeros({2, 3}, at::kDouble),
                                          at::zeros({2, 3}, at::kDouble), {}, {})
                                 .loss,
                             dpkd_token_loss(b.student, b.teacher, r.mask, {}).loss}) {
    EXPECT_EQ(loss.item<double>(), 0);
  }
  EXPECT_EQ(largest_ratio(b, {}).item<double>(), 0);
}

TEST(Gkd, DivergesContinuouslyTowardsItsEndsOnlyInShape) {
  const Rows q = as_rows(random_logits({4, 6}, 3)), p = as_rows(random_logits({4, 6}, 4));
  const Tensor mask = at::ones({2, 2}, at::kBool);
  const auto loss = [&](double beta) { return gkd_loss(q, p, mask, {.beta = beta}).loss.item<double>(); };
  EXPECT_NEAR(loss(1e-5) / 1e-5, loss(0), 1e-3 * loss(0));
  EXPECT_NEAR(loss(1 - 1e-5) / 1e-5, loss(1), 1e-3 * loss(1));
}

TEST(Gkd, LambdaDecidesWhoseResponses) {
  EXPECT_EQ(gkd_source(0, {.lambda = 0}), ResponseSource::data);
  EXPECT_EQ(gkd_source(std::nextafter(1, 0), {.lambda = 1}), ResponseSource::student);
  EXPECT_EQ(gkd_source(0.9, {.lambda = 0.5, .sequence_kd = true}), ResponseSource::teacher);
  EXPECT_EQ(gkd_source(0.9, {.lambda = 0, .gkd_alpha = 0.5}), ResponseSource::student);
}

TEST(Distillm, RatiosAreBoundedByTheSkew) {
  for (const double alpha : {0.05, 0.1, 0.5, 0.9}) {
    Responses b;
    b.student = as_rows(100 * random_logits({6, 7}, 5)), b.teacher = as_rows(100 * random_logits({6, 7}, 6));
    b.mask = at::ones({2, 3}, at::kBool);
    for (const auto skew : {DistillmOptions::Skew::skew_kl, DistillmOptions::Skew::skew_reverse_kl})
      EXPECT_LE(largest_ratio(b, {.divergence = skew, .skew_alpha = alpha}).item<double>(), (1 + 1e-12) / alpha);
  }
}

TEST(Minillm, WeightsAreBoundedByTheMixture) {
  RandomStream stream(0, "weights");
  const Tensor p = -30 * uniforms({4, 8}, stream), q = -30 * uniforms({4, 8}, stream),
               mask = at::ones({4, 8}, at::kBool);
  for (const double alpha : {0.0, 0.2, 0.9}) {
    const Tensor w = minillm_rewards(p, q, mask, {.teacher_mix = alpha}).weights;
    EXPECT_GT(w.min().item<double>(), 0);
    EXPECT_LE(w.max().item<double>(), (1 + 1e-12) / (1 - alpha));
  }
}

TEST(Minillm, PaddingTouchesAdvantagesOnlyWhereTheAuthorsLetIt) {
  const Tensor rewards = random_logits({2, 3}, 7), mask = bools({1, 1, 1, 1, 1, 0}, {2, 3});
  const auto pad = [](const Tensor& t) { return at::constant_pad_nd(t, {0, 2}, 0); };
  using Whiten = MinillmOptions::Whiten;
  for (const Whiten whiten : {Whiten::none, Whiten::masked, Whiten::all}) {
    const MinillmOptions o{.whiten = whiten};
    const double difference = (minillm_advantages(pad(rewards), pad(mask), o).narrow(1, 0, 2) -
                               minillm_advantages(rewards, mask, o).narrow(1, 0, 2))
                                  .abs()
                                  .max()
                                  .item<double>();
    EXPECT_EQ(difference < 1e-12, whiten != Whiten::all) << difference;
  }
}

TEST(Dpkd, WhereTheModelsAgreeThereIsNothingToLearn) {
  const Tensor logits = random_logits({4, 5}, 8).requires_grad_(true);
  const Rows same = as_rows(logits.detach() * 2);  // the same order, other laws
  const DpkdLoss l = dpkd_token_loss(as_rows(logits), same, at::ones({2, 2}, at::kBool), {});
  l.loss.backward();
  EXPECT_NEAR(l.loss.item<double>(), std::log(2), 1e-15);
  EXPECT_EQ(l.agreement.item<double>(), 1);
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
}

TEST(Skd, TheTokenThatStandsFollowsBothModels) {
  const std::vector<double> teacher{1.0, 0.2, -0.5, 0.9}, q{0.1, 0.4, 0.3, 0.2}, p = softmax(teacher);
  for (const int64_t k : {0, 1, 2, 4}) {
    const SkdOptions o{.top_k = k, .teacher_temperature = 1, .teacher_top_p = 1};
    std::vector<double> law(4), expected(4);
    double kept = 0;
    for (int32_t y = 0; y < 4; ++y) kept += skd_accepts(teacher, y, k, o) ? q[static_cast<size_t>(y)] : 0;
    constexpr int grid = 4000;
    for (int32_t y = 0; y < 4; ++y) {
      const auto i = static_cast<size_t>(y);
      expected[i] = (skd_accepts(teacher, y, k, o) ? q[i] : 0) + (1 - kept) * p[i];
      for (int u = 0; u < grid; ++u) {
        const int32_t token = skd_token(teacher, y, 0, (u + 0.5) / grid, o);
        law[static_cast<size_t>(token)] += q[i] / grid;
      }
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(law[i], expected[i], 1e-3) << k;
  }
}

TEST(StoredResponses, ComeBackFromACheckpointAsTheyWere) {
  const Response kept{.example = 7,
                      .tokens = {1, 2, 3},
                      .source = ResponseSource::both,
                      .numbers = {{"old_logps", {-0.1, -1.0 / 3, -2e-17}}},
                      .teacher_tokens = {9}};
  DistillationState state;
  EXPECT_TRUE(stored_responses(state, "rollout").empty());
  store_responses(state, "rollout", {kept, {}});
  state.values = Json::parse(state.values.dump());
  const std::vector<Response> back = stored_responses(state, "rollout");
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].example, kept.example);
  EXPECT_EQ(back[0].tokens, kept.tokens);
  EXPECT_EQ(back[0].source, kept.source);
  EXPECT_EQ(back[0].numbers, kept.numbers);
  EXPECT_EQ(back[0].teacher_tokens, kept.teacher_tokens);
}

TEST(Skd, RanksOfEqualLogitsGoById) {
  const double low = -std::numeric_limits<double>::infinity();
  const std::vector<double> row{low, 1, 1, low, 2};
  const std::vector<int64_t> expected{3, 1, 2, 4, 0};
  for (int32_t y = 0; y < 5; ++y) EXPECT_EQ(teacher_rank(row, y), expected[static_cast<size_t>(y)]);
  const SkdOptions whole{.accept = SkdOptions::Accept::top_p, .accept_top_p = 1};
  EXPECT_TRUE(skd_accepts(row, 1, 0, whole));
  EXPECT_FALSE(skd_accepts(row, 0, 0, whole));  // no nucleus holds what cannot be
}

TEST(Plad, EmptyResponsesAndForbiddenTokens) {
  const double low = -std::numeric_limits<double>::infinity();
  const auto side = [](const Tensor& logps, const Tensor& mask) {
    return Side{.logps = logps, .reference_logps = {}, .mask = mask, .divergences = {}};
  };
  const Tensor chosen = at::tensor({-1.0, low, nan, -0.5}, at::kDouble).reshape({2, 2}).requires_grad_(true);
  const Tensor rejected = at::tensor({-2.0, nan, low, nan}, at::kDouble).reshape({2, 2});
  const PreferenceBatch batch{.chosen = side(chosen, bools({1, 0, 0, 1}, {2, 2})),
                              .rejected = side(rejected, bools({1, 0, 0, 0}, {2, 2})),
                              .weight = {}};
  const PladLoss l = plad_loss(batch, {.beta = 3, .length_normalise = true});
  l.loss.backward();
  EXPECT_DOUBLE_EQ(l.loss.item<double>(), (2 + 3.5) / 2);
  EXPECT_TRUE(chosen.grad().equal(at::tensor({-0.5, 0.0, 0.0, -0.5}, at::kDouble).reshape({2, 2})));
}

TEST(Plad, Verdicts) {
  const PladOptions by_score{.filter_by_score = true};
  EXPECT_EQ(plad_verdict({1}, {2}, 0, 1, {}), "kept");
  EXPECT_EQ(plad_verdict({1}, {2}, 1, 1, by_score), "score");
  EXPECT_EQ(plad_verdict({}, {2}, 2, 1, by_score), "empty");
  EXPECT_EQ(plad_verdict({2}, {2}, 2, 1, by_score), "identical");
}

}  // namespace
}  // namespace kullback
