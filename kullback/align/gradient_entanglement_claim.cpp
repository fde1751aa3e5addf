// What gradient entanglement claims: long common endings tie chosen and rejected together; a normalised step does not.
#include <ATen/ATen.h>

#include "kullback/align/gradient_entanglement.h"
#include "kullback/align/head_gradients.h"
#include "kullback/align/one_step.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

using at::Tensor;

/// Pairs of responses under a linear head that differ in their first token and share so many after it.
struct Pairs {
  Tensor weight;
  HeadSide chosen, rejected;
};
Pairs pairs_with_suffix(int64_t suffix, bool shared) {
  constexpr int64_t count = 40, vocabulary = 20, width = 16;
  RandomStream stream(171, "claim/entanglement");
  Pairs p{.weight = normals({vocabulary, width}, stream) * 0.3, .chosen = {}, .rejected = {}};
  const auto tokens = [&](int64_t length) {
    Tensor ids = at::empty({count, length}, at::kLong);
    for (int64_t i = 0; i < ids.numel(); ++i)
      ids.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(stream.below(vocabulary));
    return ids;
  };
  const Tensor first = tokens(1), other = (first + 1 + at::remainder(tokens(1), vocabulary - 1)).remainder(vocabulary);
  const Tensor ending = tokens(suffix), hidden = normals({count, 1 + suffix, width}, stream);
  const Tensor mask = at::ones({count, 1 + suffix}, at::kBool);
  p.chosen = {hidden, at::cat({first, ending}, 1), mask};
  p.rejected = {1.3 * (shared ? hidden : normals({count, 1 + suffix, width}, stream)),
                at::cat({other, shared ? ending : tokens(suffix)}, 1), mask};
  return p;
}

ClaimResult run(bool with_baseline) {
  Table table{.title = "40 pairs under a linear head, DPO: the first token differs, the rest is common",
              .columns = {number_column("common tokens"), number_column("mean condition"),
                          number_column("entangled pairs"), number_column("pairs a normalised step separates")}};
  std::vector<double> conditions, shares;
  double separated = 1;
  for (const int64_t suffix : {0, 1, 3, 7, 15}) {
    const Pairs p = pairs_with_suffix(suffix, /*shared=*/!with_baseline);
    const PairGradients g = inner_products(head_gradients(p.weight, p.chosen), head_gradients(p.weight, p.rejected));
    const Tensor w = head_logps(p.weight, p.chosen).sum(-1), l = head_logps(p.weight, p.rejected).sum(-1),
                 length = at::full_like(w, static_cast<double>(suffix + 1));
    const Entanglement e = entanglement({w, l, w, l, length, length}, g, {});
    const auto share = [](const Tensor& yes) { return yes.to(at::kDouble).mean().item<double>(); };
    conditions.push_back(e.condition.mean().item<double>());
    shares.push_back(share((e.chosen_change > 0) == (e.rejected_change > 0)));
    const double apart = share((e.normalised_chosen_change >= 0) & (e.normalised_rejected_change <= 0));
    separated = std::min(separated, apart);
    table.rows.push_back({suffix, conditions.back(), shares.back(), apart});
  }
  double growth = INFINITY;
  for (size_t i = 1; i < conditions.size(); ++i) growth = std::min(growth, conditions[i] - conditions[i - 1]);
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {at_least("least growth of the mean condition from one length to the next", growth, 0.01),
                       at_most("mean condition without a common ending", conditions.front(), 0.5),
                       at_least("mean condition with 15 common tokens", conditions.back(), 1),
                       at_most("share of entangled pairs without a common ending", shares.front(), 0),
                       at_least("share of entangled pairs with 15 common tokens", shares.back(), 0.9),
                       at_least("share of pairs that the normalised step separates", separated, 1)};
  return result;
}

const RegisteredClaim claim{
    {.name = "gradient-entanglement",
     .method = "gradient-entanglement",
     .statement =
         "The longer the common ending of chosen and rejected, the more their gradients agree, until a step of "
         "DPO moves both the same way; a pairwise normalised step separates every pair.",
     .paper_says =
         "Yuan et al. 2024, section 4: one-token responses behave, long common endings do not; the sign of the "
         "change follows the condition on the inner product.",
     .baseline = "responses without a common ending",
     .run = run}};

}  // namespace
}  // namespace kullback
