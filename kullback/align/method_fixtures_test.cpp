// The golden fixtures of the methods, through the code that training uses, and a closed form or two each.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/align/calibration.h"
#include "kullback/align/d2o.h"
#include "kullback/align/dpo.h"
#include "kullback/align/f_dpo.h"
#include "kullback/align/h_dpo.h"
#include "kullback/align/kto.h"
#include "kullback/align/preference_batch_test.h"
#include "kullback/align/sampo.h"
#include "kullback/align/tr_dpo.h"
#include "kullback/align/transport.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/weight_average.h"

namespace kullback {
namespace {

using at::Tensor;

TEST(MethodFixtures, Fdpo) { expect_fixture_passes("f-dpo", 17); }
TEST(MethodFixtures, Tdpo) { expect_fixture_passes("tdpo", 8); }
TEST(MethodFixtures, Sampo) { expect_fixture_passes("sampo", 11); }
TEST(MethodFixtures, LnDpo) { expect_fixture_passes("ln-dpo", 11); }
TEST(MethodFixtures, Hdpo) { expect_fixture_passes("h-dpo", 9); }
TEST(MethodFixtures, Cpl) { expect_fixture_passes("cpl", 12); }
TEST(MethodFixtures, D2o) { expect_fixture_passes("d2o", 6); }
TEST(MethodFixtures, Fpo) { expect_fixture_passes("fpo", 7); }
TEST(MethodFixtures, DpoKernels) { expect_fixture_passes("dpo-kernels", 30); }
TEST(MethodFixtures, TrDpo) { expect_fixture_passes("tr-dpo", 11); }
TEST(MethodFixtures, Salsa) { expect_fixture_passes("salsa", 9); }
TEST(MethodFixtures, Kto) { expect_fixture_passes("kto", 14); }
TEST(MethodFixtures, GradientEntanglement) { expect_fixture_passes("gradient-entanglement", 14); }

TEST(Fdpo, SmallAlphaIsReverseKl) {
  const PreferenceBatch batch = random_pairs(4, 3, 1);
  const double near =
      fdpo_loss(batch, {.divergence = FdpoOptions::Constraint::alpha, .alpha = 1e-7}).value.item<double>();
  EXPECT_NEAR(near, fdpo_loss(batch, {}).value.item<double>(), 1e-6);
}

TEST(Hdpo, AlphaOneIsDpoBitForBit) {
  const PreferenceBatch batch = random_pairs(4, 3, 2);
  EXPECT_EQ(hdpo_loss(batch, {.alpha = 1, .beta = 0.3}).value.item<double>(),
            dpo_loss(batch, {.beta = 0.3}).value.item<double>());
}

TEST(Sampo, EqualLengthsAreDpo) {
  PreferenceBatch batch = random_pairs(4, 3, 3);
  batch.chosen.mask = batch.rejected.mask = at::ones({4, 3}, at::kBool);
  EXPECT_NEAR(sampo_loss(batch, {}).value.item<double>(), dpo_loss(batch, {}).value.item<double>(), 1e-14);
}

TEST(Sampo, KeepsAsManyCountedPlacesAsAskedTiesToTheFirst) {
  const Tensor u = at::tensor({0.5, 0.1, 0.5, 0.5}, at::kDouble).reshape({1, 4});
  const Tensor mask = at::tensor({1, 0, 1, 1}).to(at::kBool).reshape({1, 4});
  EXPECT_TRUE(smallest(u, mask, at::tensor({2})).equal(at::tensor({1, 0, 1, 0}).to(at::kBool).reshape({1, 4})));
}

TEST(D2o, TheLawsLossIsAtMostTheMeanOfTheInstances) {
  PreferenceBatch batch = random_pairs(6, 3, 4);
  batch.rejected.logps = batch.rejected.logps.narrow(0, 0, 2);
  batch.rejected.reference_logps = batch.rejected.reference_logps.narrow(0, 0, 2);
  batch.rejected.mask = batch.rejected.mask.narrow(0, 0, 2);
  batch.chosen_pair = at::tensor({0, 0, 0, 1, 1, 1});
  const PreferenceLoss loss = d2o_loss(batch, {.beta = 1});
  EXPECT_TRUE((loss.losses <= loss.parts.at("instance_dpo_losses")).all().item<bool>());
}

TEST(Kto, TheReferencePointCarriesNoGradient) {
  PreferenceBatch batch = random_pairs(3, 4, 5);
  batch.mismatched.logps = batch.mismatched.logps + 5;  // a KL above 0
  batch.mismatched.logps.requires_grad_(true);
  batch.chosen.logps.requires_grad_(true);
  const PreferenceLoss loss = kto_loss(batch, {});
  EXPECT_GT(loss.parts.at("z0").item<double>(), 0);
  EXPECT_FALSE(torch::autograd::grad({loss.value}, {batch.mismatched.logps}, {}, true, false, true)[0].defined());
}

TEST(MovingReference, MovesAfterEveryStepsOrBetweenParts) {
  const MovingReference every{.weight = 1, .every = 3}, parts{.parts = 3};
  std::vector<int64_t> of_every, of_parts;
  for (int64_t step = 1; step <= 10; ++step) {
    if (every.now(step, 10)) of_every.push_back(step);
    if (parts.now(step, 10)) of_parts.push_back(step);
  }
  EXPECT_EQ(of_every, (std::vector<int64_t>{3, 6, 9}));
  EXPECT_EQ(of_parts, (std::vector<int64_t>{4, 7}));
}

TEST(Transport, OnALineIsTheDifferenceOfDistributionFunctions) {
  at::manual_seed(6);
  const Tensor p = at::softmax(at::randn({3, 9}, at::kDouble), -1), q = at::softmax(at::randn({3, 9}, at::kDouble), -1);
  const Tensor place = at::arange(9, at::kDouble), cost = (place.unsqueeze(0) - place.unsqueeze(1)).abs();
  EXPECT_TRUE(at::allclose(transport_cost(p, q, cost), (p - q).cumsum(-1).abs().sum(-1), 1e-12, 1e-12));
  EXPECT_NEAR(transport(p[0], p[0], cost).cost, 0, 1e-14);
}

TEST(Calibration, FullConfidenceBelongsToTheLastBin) {
  const Calibration c = calibration(at::tensor({0.0, 1.0, 1.0}, at::kDouble), at::tensor({0, 1, 0}), 10);
  EXPECT_EQ(c.count[9].item<double>(), 2);
  EXPECT_NEAR(c.error.item<double>(), 2.0 / 3 * 0.5, 1e-15);
}

TEST(WeightAverage, OfOneModelTwiceIsThatModel) {
  const Tensor w = at::rand({3, 2});
  EXPECT_TRUE(weighted_average({w, w}, {0.5, 0.5}).equal(w));
}

}  // namespace
}  // namespace kullback
