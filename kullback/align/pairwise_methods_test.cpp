// What every loss on pairs must do, for all of them alike.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kullback/align/cpl.h"
#include "kullback/align/d2o.h"
#include "kullback/align/f_dpo.h"
#include "kullback/align/h_dpo.h"
#include "kullback/align/kto.h"
#include "kullback/align/ln_dpo.h"
#include "kullback/align/preference_batch_test.h"
#include "kullback/align/sampo.h"
#include "kullback/align/tdpo.h"
#include "kullback/align/tr_dpo.h"

namespace kullback {
namespace {

struct Case {
  const char* name;
  LossFunction loss;
};

const std::vector<Case>& cases() {
  using F = FdpoOptions::Constraint;
  static const std::vector<Case> all{
      {"f-dpo forward_kl", [](const auto& b) { return fdpo_loss(b, {.divergence = F::forward_kl}); }},
      {"f-dpo jsd", [](const auto& b) { return fdpo_loss(b, {.divergence = F::jsd}); }},
      {"f-dpo alpha", [](const auto& b) { return fdpo_loss(b, {.divergence = F::alpha, .alpha = 0.3}); }},
      {"tdpo1", [](const auto& b) { return tdpo_loss(b, {.variant = TdpoOptions::Variant::tdpo1}); }},
      {"tdpo2", [](const auto& b) { return tdpo_loss(b, TdpoOptions{}); }},
      {"sampo", [](const auto& b) { return sampo_loss(b, {.sft_lambda = 0.5}); }},
      {"sampo independent", [](const auto& b) { return sampo_loss(b, {.mode = SampoOptions::Mode::independent}); }},
      {"sampo average", [](const auto& b) { return sampo_loss(b, {.mode = SampoOptions::Mode::average}); }},
      {"ln-dpo", [](const auto& b) { return ln_dpo_loss(b, {.label_smoothing = 0.1}); }},
      {"simpo",
       [](const auto& b) { return ln_dpo_loss(b, {.variant = LnDpoOptions::Variant::simpo, .sft_weight = 0.3}); }},
      {"h-dpo", [](const auto& b) { return hdpo_loss(b, {.alpha = 0.8}); }},
      {"cpl", [](const auto& b) { return cpl_loss(b, {.discount = 0.9, .bc_coeff = 0.5}); }},
      {"cpl-kl", [](const auto& b) { return cpl_loss(b, {.variant = CplOptions::Variant::cpl_kl}); }},
      {"d2o", [](const auto& b) { return d2o_loss(b, {.beta = 0.3}); }},
      {"kto", [](const auto& b) { return kto_loss(b, {.undesirable_weight = 1.5}); }},
      {"kto surprisal", [](const auto& b) { return kto_loss(b, {.variant = KtoOptions::Variant::surprisal}); }},
      {"tr-dpo kto",
       [](const auto& b) { return tr_dpo_loss(b, {.beta = 0.4, .loss_type = TrDpoOptions::LossType::kto}); }},
  };
  return all;
}

TEST(PairwiseMethods, GradientsAreThoseOfFiniteDifferences) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_true_gradients(c.loss, random_pairs(3, 4, 7));
  }
}

TEST(PairwiseMethods, MaskedPlacesAreIgnored) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_masked_places_ignored(c.loss, random_pairs(3, 5, 9));
  }
}

TEST(PairwiseMethods, EmptyResponsesLeaveTheLossFinite) {
  PreferenceBatch batch = random_pairs(2, 3, 11);
  batch.chosen.mask = at::zeros_like(batch.chosen.mask);
  batch.rejected.mask = at::zeros_like(batch.rejected.mask);
  batch.mismatched.mask = at::zeros_like(batch.mismatched.mask);
  for (const Case& c : cases()) EXPECT_TRUE(std::isfinite(c.loss(batch).value.item<double>())) << c.name;
}

TEST(PairwiseMethods, EqualResponsesGiveNoMargin) {
  PreferenceBatch batch = random_pairs(2, 3, 13);
  batch.rejected = batch.chosen;
  for (const Case& c : cases()) {
    if (std::string_view(c.name) == "sampo independent") continue;  // its draws are its own
    const PreferenceLoss loss = c.loss(batch);
    if (std::string_view(c.name) == "d2o") continue;  // its two sides have weights of their own
    EXPECT_TRUE(at::allclose(loss.chosen_rewards, loss.rejected_rewards)) << c.name;
  }
}

TEST(PairwiseMethods, WeightsMultiplyEachPairsLoss) {
  for (const Case& c : cases()) {
    if (std::string_view(c.name).starts_with("kto")) continue;  // they weigh the reference point too
    PreferenceBatch batch = random_pairs(3, 4, 15);
    const PreferenceLoss plain = c.loss(batch);
    const double beside = plain.value.item<double>() - plain.losses.mean().item<double>();  // supervised terms
    batch.weight = at::tensor({0.0, 2.0, 1.0}, at::kDouble);
    EXPECT_NEAR(c.loss(batch).value.item<double>() - beside, (plain.losses * batch.weight).sum().item<double>() / 3,
                1e-12)
        << c.name;
  }
}

}  // namespace
}  // namespace kullback
