#include "kullback/align/r_dpo.h"

#include "kullback/align/dpo.h"
#include "kullback/align/preference_batch_test.h"

namespace kullback {
namespace {

TEST(Rdpo, GoldenNumbers) { expect_fixture_passes("r-dpo", 5); }

TEST(Rdpo, GradientsAreThoseOfFiniteDifferencesAndMasksAreKept) {
  const auto loss = [](const PreferenceBatch& batch) { return rdpo_loss(batch, {.beta = 0.4, .alpha = 0.2}); };
  expect_true_gradients(loss, random_pairs(3, 5, 1));
  expect_masked_places_ignored(loss, random_pairs(4, 6, 2));
}

TEST(Rdpo, WithoutAPriceItIsDpoBitForBit) {
  const PreferenceBatch batch = random_pairs(4, 5, 3);
  EXPECT_EQ(rdpo_loss(batch, {.beta = 0.3, .alpha = 0}).value.item<double>(),
            dpo_loss(batch, {.beta = 0.3}).value.item<double>());
}

}  // namespace
}  // namespace kullback
