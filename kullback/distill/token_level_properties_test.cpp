// What all token-level losses have in common.
#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/distill/akl.h"
#include "kullback/distill/atkd.h"
#include "kullback/distill/dac_kl.h"
#include "kullback/distill/moment_matching.h"
#include "kullback/distill/moment_world.h"
#include "kullback/distill/pesf.h"
#include "kullback/distill/self_evolution.h"
#include "kullback/distill/sinkd.h"
#include "kullback/distill/swing.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// A loss of rows of logits [N,V] of student and teacher, labels and mask [1,N].
using Loss = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>;

struct Named {
  const char* name;
  Loss loss;
  bool pure = true;  ///< a divergence alone: 0 where student and teacher agree
};

std::vector<Named> losses() {
  std::vector<Named> all;
  all.push_back({"akl", [](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                   return akl_loss(as_rows(s), as_rows(t), y, m, {}).loss;
                 }});
  for (const auto setting : {AtkdOptions::Setting::forward, AtkdOptions::Setting::reverse}) {
    all.push_back({"atkd", [setting](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                     return atkd_loss(as_rows(s), as_rows(t), y, m, {.setting = setting}).loss;
                   }});
  }
  all.push_back({"dac-kl", [](const Tensor& s, const Tensor& t, const Tensor&, const Tensor& m) {
                   return dac_kl_loss(as_rows(s), as_rows(t), m, {}, {.bounds = DacKlOptions::Bounds::fixed}).loss;
                 }});
  all.push_back({"self-evolution-kd", [](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                   return self_evolution_loss(as_rows(s), as_rows(t), y, m, {.lam = 0}).loss;
                 }});
  all.push_back({"pesf-kd", [](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                   return pesf_loss(as_rows(s), as_rows(t), as_rows(t), y, m, {.gamma = 0, .delta = 0}).loss;
                 }});
  all.push_back({"swing", [](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                   return swing_loss(as_rows(s), as_rows(t), y, m, at::full(m.sizes(), 0.3, at::kDouble), {},
                                     {.noise = SwingOptions::Noise::none, .lam = 1})
                       .loss;
                 }});
  all.push_back({"sinkd",
                 [](const Tensor& s, const Tensor& t, const Tensor& y, const Tensor& m) {
                   return sinkd_loss(as_rows(s), as_rows(t), y, m, {}).loss;
                 },
                 false});
  return all;
}

struct Batch {
  Tensor student, teacher, labels, mask;
};

Batch batch(int64_t rows, int64_t vocabulary) {
  RandomStream stream(7, "token-level");
  Batch b{.student = 2 * normals({rows, vocabulary}, stream),
          .teacher = 2 * normals({rows, vocabulary}, stream),
          .labels = (uniforms({1, rows}, stream) * vocabulary).to(at::kLong),
          .mask = at::ones({1, rows}, at::kBool)};
  return b;
}

TEST(TokenLevelProperties, NothingIsReadWhereTheMaskIsFalse) {
  for (const Named& one : losses()) {
    Batch b = batch(6, 5);
    b.mask.select(1, 2).fill_(false), b.mask.select(1, 5).fill_(false);
    const Tensor counted = b.mask.reshape(-1).nonzero().squeeze(1);
    const auto of = [&](const Tensor& t) { return t.index_select(0, counted); };
    const double alone =
        one.loss(of(b.student), of(b.teacher), b.labels.index_select(1, counted), at::ones({1, 4}, at::kBool))
            .item<double>();
    for (const int64_t row : {2, 5}) {
      b.student[row].fill_(std::numeric_limits<double>::quiet_NaN());
      b.teacher[row].fill_(std::numeric_limits<double>::quiet_NaN());
      b.labels[0][row] = -100;
    }
    b.student.requires_grad_(true);
    const Tensor loss = one.loss(b.student, b.teacher, b.labels, b.mask);
    EXPECT_NEAR(loss.item<double>(), alone, 1e-12) << one.name;
    loss.backward();
    EXPECT_FALSE(b.student.grad().isnan().any().item<bool>()) << one.name;
    EXPECT_EQ(b.student.grad()[2].abs().sum().item<double>(), 0) << one.name;
  }
}

TEST(TokenLevelProperties, TokensMayBeNumberedInAnyOrder) {
  const Batch b = batch(6, 7);
  const Tensor order = at::tensor({3, 0, 6, 2, 5, 1, 4}, at::kLong), place = at::argsort(order);
  for (const Named& one : losses()) {
    const double before = one.loss(b.student, b.teacher, b.labels, b.mask).item<double>();
    const double after =
        one.loss(b.student.index_select(1, order), b.teacher.index_select(1, order), look_up(place, b.labels), b.mask)
            .item<double>();
    EXPECT_NEAR(after, before, 1e-12) << one.name;
  }
}

TEST(TokenLevelProperties, AVocabularyOfOneTokenTeachesNothing) {
  for (const Named& one : losses()) {
    Batch b = batch(3, 1);
    b.student.requires_grad_(true);
    const Tensor loss = one.loss(b.student, b.teacher, b.labels, b.mask);
    EXPECT_NEAR(loss.item<double>(), 0, 1e-12) << one.name;
    loss.backward();
    EXPECT_NEAR(b.student.grad().abs().max().item<double>(), 0, 1e-12) << one.name;
  }
}

TEST(TokenLevelProperties, EqualModelsHaveNothingToLearn) {
  for (const Named& one : losses()) {
    if (!one.pure) continue;
    const Batch b = batch(5, 6);
    const Tensor student = b.teacher.clone().requires_grad_(true);
    const Tensor loss = one.loss(student, b.teacher, b.labels, b.mask);
    EXPECT_NEAR(loss.item<double>(), 0, 1e-12) << one.name;
    loss.backward();
    EXPECT_NEAR(student.grad().abs().max().item<double>(), 0, 1e-12) << one.name;
  }
}

TEST(TokenLevelProperties, NothingCountedIsNothingLost) {
  for (const Named& one : losses()) {
    Batch b = batch(4, 5);
    b.mask.fill_(false);
    b.student.requires_grad_(true);
    const Tensor loss = one.loss(b.student, b.teacher, b.labels, b.mask);
    EXPECT_EQ(loss.item<double>(), 0) << one.name;
    if (!loss.requires_grad()) continue;
    loss.backward();
    EXPECT_EQ(b.student.grad().abs().sum().item<double>(), 0) << one.name;
  }
}

TEST(MomentMatching, WithTheTeachersValuesTheStudentClimbsItsReturn) {
  // f2 = Q of the teacher: the expected gradient of the surrogate is exactly that of -J(student), whichever estimator.
  const SequenceSpace space{.vocabulary = 3, .length = 3, .ends = false};
  RandomStream stream(5, "moment-matching");
  const Tensor teacher = random_rows(space, 1, 1.5, stream)[0], rewards = normals(teacher.sizes(), stream);
  const Tensor logits = normals(teacher.sizes(), stream).requires_grad_(true);
  const SequenceTable table = sequence_table(space);
  for (const double gamma : {1.0, 0.8}) {
    const MomentWorld w = moment_world(space, teacher, at::log_softmax(logits, 1), rewards, gamma);
    const Tensor wanted = torch::autograd::grad({-w.student_return}, {logits})[0];
    const Tensor q = response_logps(space, at::log_softmax(logits.detach(), 1).unsqueeze(0))[0].exp();
    for (const auto estimator :
         {MomentMatchingOptions::Estimator::sampled, MomentMatchingOptions::Estimator::expected}) {
      for (const bool baseline : {true, false}) {
        const MomentMatchingOptions o{
            .gamma = gamma, .critic_bound = 0, .on_estimator = estimator, .baseline = baseline};
        Tensor gradient = at::zeros_like(logits);
        for (int64_t r = 0; r < q.numel(); ++r) {
          const auto rows = [&](const Tensor& all) { return as_rows(all.index_select(0, table.prefixes[r])); };
          const MomentSide side{.student = rows(logits),
                                .teacher = rows(teacher),
                                .critic = rows(w.teacher_values),
                                .labels = table.tokens.narrow(0, r, 1),
                                .mask = table.mask.narrow(0, r, 1)};
          gradient += q[r] * torch::autograd::grad({moment_on_policy(side, o).loss}, {logits})[0];
        }
        EXPECT_LT((gradient - wanted).abs().max().item<double>(), 1e-13) << gamma << " " << baseline;
      }
    }
  }
}

TEST(DacKl, LevelsLearnByTheGradientOfWhatIsReported) {
  const Batch b = batch(4, 6);
  RandomStream stream(3, "dac-kl");
  const LevelNetwork network{.w1 = normals({3, 4}, stream).requires_grad_(true),
                             .b1 = normals({3}, stream).requires_grad_(true),
                             .w2 = normals({2, 3}, stream).requires_grad_(true),
                             .b2 = normals({2}, stream).requires_grad_(true)};
  const DacKlOptions o{.levels = {0.3, 0.9}, .softness = 0.7, .coverage_weight = 0.5};
  const auto loss = [&] { return dac_kl_loss(as_rows(b.student), as_rows(b.teacher), b.mask, network, o).loss; };
  loss().backward();
  for (const Tensor& weight : {network.w1, network.b2}) {
    const Tensor flat = weight.detach().reshape(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double at = flat[i].item<double>(), h = 1e-5;
      flat[i] = at + h;
      const double above = loss().item<double>();
      flat[i] = at - h;
      const double below = loss().item<double>();
      flat[i] = at;
      EXPECT_NEAR(weight.grad().reshape(-1)[i].item<double>(), (above - below) / (2 * h), 1e-7);
    }
  }
}

TEST(Sinkd, ProblemsAreCutAtTheirLargestSize) {
  const Batch b = batch(6, 4);
  const SinkdOptions whole{.kl_weight = 0, .normalize = SinkdOptions::Normalize::sum};
  SinkdOptions cut = whole;
  cut.max_rows = 4;
  const auto part = [&](int64_t first, int64_t rows) {
    return sinkd_loss(as_rows(b.student.narrow(0, first, rows)), as_rows(b.teacher.narrow(0, first, rows)), {},
                      at::ones({1, rows}, at::kBool), whole)
        .loss.item<double>();
  };
  EXPECT_NEAR(sinkd_loss(as_rows(b.student), as_rows(b.teacher), {}, b.mask, cut).loss.item<double>(),
              part(0, 4) + part(4, 2), 1e-12);
}

TEST(DacKl, CutsResponsesIntoPhrasesOrWindows) {
  const std::vector<std::string> first{"Yes", ",", " it", " is", ".", " So"},
      second{"pad", "no", " end", "pad", "a", ".\n"};
  const Tensor mask = at::tensor({1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1}, at::kLong).reshape({2, 6}).to(at::kBool);
  const Tensor phrases = spans_where(mask, [&](int64_t row, int64_t, int64_t t) {
    return closes_phrase((row == 0 ? first : second)[static_cast<size_t>(t)]);
  });
  EXPECT_TRUE(at::equal(phrases, at::tensor({0, 0, 1, 0, 2, 4, 0, 5, 5, 1, 1, 2, 1, 4, 5}, at::kLong).reshape({5, 3})));
  const Tensor windows = spans_where(mask, [](int64_t, int64_t begin, int64_t t) { return t + 1 - begin == 4; });
  EXPECT_TRUE(at::equal(windows, at::tensor({0, 0, 3, 0, 4, 5, 1, 1, 2, 1, 4, 5}, at::kLong).reshape({4, 3})));
  EXPECT_EQ(spans_where(at::zeros({2, 3}, at::kBool), [](int64_t, int64_t, int64_t) { return true; }).size(0), 0);
  EXPECT_FALSE(closes_phrase("") || closes_phrase("  ") || closes_phrase("word"));
  EXPECT_TRUE(closes_phrase("end. ") && closes_phrase("\n"));
}

}  // namespace
}  // namespace kullback
