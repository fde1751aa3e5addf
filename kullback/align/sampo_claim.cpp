// What SamPO claims: a response's length is no argument for or against it.
#include <ATen/ATen.h>

#include "kullback/align/dpo.h"
#include "kullback/align/one_step.h"
#include "kullback/align/sampo.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

using at::Tensor;

double correlation(const Tensor& a, const Tensor& b) {
  const Tensor x = a - a.mean(), y = b - b.mean();
  return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).item<double>();
}

ClaimResult run(bool with_baseline) {
  constexpr int64_t pairs = 4000, longest = 40, shortest = 5;
  RandomStream stream(0, "claim/sampo");
  const auto side = [&] {
    const Tensor length = (shortest + uniforms({pairs, 1}, stream) * (longest - shortest + 1)).floor();
    return Side{.logps = 0.1 + 0.3 * normals({pairs, longest}, stream),
                .reference_logps = at::zeros({pairs, longest}, at::kDouble),
                .mask = at::arange(longest).unsqueeze(0) < length,
                .divergences = {},
                .uniforms = {uniforms({pairs, longest}, stream)}};
  };
  const PreferenceBatch batch{.chosen = side(), .rejected = side(), .weight = {}};
  const Tensor lead = (batch.chosen.mask.sum(-1) - batch.rejected.mask.sum(-1)).to(at::kDouble);
  const auto sampo = [&](SampoOptions::Mode mode) {
    return with_baseline ? dpo_loss(batch, {}).parts.at("logits")
                         : sampo_loss(batch, {.mode = mode}).parts.at("logits");
  };
  const double sampled = correlation(sampo(SampoOptions::Mode::shared), lead),
               average = correlation(sampo(SampoOptions::Mode::average), lead),
               plain = correlation(dpo_loss(batch, {}).parts.at("logits"), lead);
  ClaimResult result;
  result.tables.push_back(
      {.title = "4000 pairs of random lengths whose tokens are equally good on both sides",
       .columns = {text_column("margin of"), number_column("correlation with the difference of lengths")},
       .rows = {{"dpo", plain}, {"sampo", sampled}, {"sampo, averages", average}}});
  result.assertions = {at_most("SamPO: size of the correlation of margin and length", std::abs(sampled), 0.05),
                       at_most("SamPO with averages: the same", std::abs(average), 0.05),
                       at_least("DPO: correlation of margin and length", plain, 0.4)};
  return result;
}

const RegisteredClaim claim{
    {.name = "sampo",
     .method = "sampo",
     .statement =
         "Where both responses' tokens are equally good, DPO's margin follows the difference of their lengths; "
         "SamPO's does not.",
     .paper_says = "Lu et al. 2024, section 3: the summed KL of the longer response dominates DPO's reward; drawing "
                   "equally many tokens removes the length and keeps the rest of the margin.",
     .baseline = "DPO",
     .run = run}};

}  // namespace
}  // namespace kullback
