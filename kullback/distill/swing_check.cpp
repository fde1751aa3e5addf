// How the cases of swing's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/fixture_rows.h"
#include "kullback/distill/swing.h"

namespace kullback {
namespace {

using at::Tensor;

CheckOutputs loss_case(CheckCase& c) {
  const auto o = fixture_options<SwingOptions>(c, "swing");
  const Rows teacher = fixture_rows(c, "teacher");
  const Tensor privacy = c.tensor("privacy").to(at::kDouble);
  const SwingNoise noise = [&](const Tensor& places, const Tensor& ids) {
    const Tensor all = c.tensor(c.has("noise_normal") ? "noise_normal" : "noise_uniform").to(at::kDouble).flatten(0, 1);
    return all.index_select(0, places).gather(1, ids);
  };
  const SwingLoss l =
      swing_loss(fixture_rows(c, "student"), teacher, c.tensor("labels"), c.mask("mask"), privacy, noise, o);
  const SwingTargets targets =
      swing_targets(teacher.hidden, privacy.reshape(-1), at::arange(privacy.numel(), at::kLong), noise, o);
  const auto shaped = [&](const Tensor& rows) { return rows.reshape(c.tensor("teacher_logits").sizes()); };
  return {{"loss", l.loss},
          {"kd", l.kd},
          {"ce", l.ce},
          {"temperature", l.temperature},
          {"clean_target", shaped(targets.clean)},
          {"noisy_target", shaped(targets.noisy)},
          {"kl_per_token", l.per_token}};
}

CheckOutputs exposure_case(CheckCase& c) {
  const CanaryExposure e = canary_exposure(c.tensor("canary_logp").to(at::kDouble), c.option<int64_t>("inserted", 0));
  return {{"rank", at::scalar_tensor(e.rank, at::kDouble)}, {"exposure", at::scalar_tensor(e.exposure, at::kDouble)}};
}

CheckOutputs score_case(CheckCase& c) {
  return {{"privacy", privacy_score(c.tensor("teacher_logps").to(at::kDouble), c.tensor("public_logps").to(at::kDouble),
                                    c.option("margin", 0.0), c.option("width", 1.0))}};
}

const RegisteredCheck loss_check{"swing", "", loss_case};
const RegisteredCheck exposure_check{"swing", "exposure", exposure_case};
const RegisteredCheck score_check{"swing", "score", score_case};

}  // namespace
}  // namespace kullback
