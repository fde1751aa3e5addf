#pragma once

#include <functional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/train/check.h"
#include "kullback/train/preference.h"

namespace kullback {

/// Random pairs with ragged masks, uniform numbers and hidden states.
inline PreferenceBatch random_pairs(int64_t pairs, int64_t length, uint64_t seed) {
  at::manual_seed(seed);
  const auto side = [&] {
    const at::Tensor mask = at::arange(length).unsqueeze(0) < at::randint(1, length + 1, {pairs, 1});
    return Side{.logps = -at::rand({pairs, length}, at::kDouble) * 3,
                .reference_logps = -at::rand({pairs, length}, at::kDouble) * 3,
                .mask = mask,
                .divergences = {at::rand({pairs, length}, at::kDouble)},
                .uniforms = {at::rand({pairs, length}, at::kDouble), at::rand({pairs, length}, at::kDouble)},
                .hidden = at::randn({pairs, length, 4}, at::kDouble),
                .reference_hidden = at::randn({pairs, length, 4}, at::kDouble)};
  };
  PreferenceBatch batch{.chosen = side(), .rejected = side(), .weight = {}};
  batch.mismatched = side();
  const Side more = side();
  for (at::Tensor Side::*member : {&Side::logps, &Side::reference_logps, &Side::mask})
    batch.mismatched.*member = at::cat({batch.mismatched.*member, more.*member});
  return batch;
}

using LossFunction = std::function<PreferenceLoss(const PreferenceBatch&)>;

/// The gradient in both sides' log-probabilities is that of finite differences, and 0 in masked places.
inline void expect_true_gradients(const LossFunction& loss, PreferenceBatch batch) {
  for (Side PreferenceBatch::*side : {&PreferenceBatch::chosen, &PreferenceBatch::rejected}) {
    PreferenceBatch leaf = batch;
    (leaf.*side).logps = (batch.*side).logps.clone().requires_grad_(true);
    const at::Tensor found = torch::autograd::grad({loss(leaf).value}, {(leaf.*side).logps})[0];
    for (int64_t i = 0; i < found.numel(); ++i) {
      const auto at_step = [&](double step) {
        PreferenceBatch moved = batch;
        (moved.*side).logps = (batch.*side).logps.clone();
        (moved.*side).logps.view(-1)[i] += step;
        return loss(moved).value.item<double>();
      };
      EXPECT_NEAR(found.reshape(-1)[i].item<double>(), (at_step(1e-6) - at_step(-1e-6)) / 2e-6, 1e-6) << i;
    }
    EXPECT_TRUE(found.masked_select(~(batch.*side).mask).eq(0).all().item<bool>());
  }
}

/// What stands in masked places changes neither loss nor gradient.
inline void expect_masked_places_ignored(const LossFunction& loss, const PreferenceBatch& batch) {
  PreferenceBatch dirty = batch;
  for (Side* s : {&dirty.chosen, &dirty.rejected, &dirty.mismatched}) {
    const at::Tensor garbage = at::full({}, std::nan(""), at::kDouble);
    s->logps = at::where(s->mask, s->logps, garbage).detach();
    s->reference_logps = at::where(s->mask, s->reference_logps, garbage);
  }
  dirty.chosen.logps.requires_grad_(true);
  const at::Tensor value = loss(dirty).value;
  EXPECT_EQ(value.item<double>(), loss(batch).value.item<double>());
  EXPECT_TRUE(torch::autograd::grad({value}, {dirty.chosen.logps})[0].isfinite().all().item<bool>());
}

inline void expect_fixture_passes(const std::string& name, size_t cases) {
  const CheckReport report = check_file(std::string(KULLBACK_FIXTURES "/") + name + ".json");
  EXPECT_EQ(report.results.size(), cases);
  for (const CheckResult& result : report.results)
    EXPECT_TRUE(result.passed) << result.name << ": " << result.largest_difference << " at " << result.at;
}

}  // namespace kullback
