// What is true of DPO-Kernels: as released it is unbounded, with a log-sigmoid link it is DPO with a kernel in the margin.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/align/dpo.h"
#include "kullback/align/dpo_kernels.h"
#include "kullback/align/one_step.h"
#include "kullback/base/registry.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

using at::Tensor;
using O = DpoKernelsOptions;

ClaimResult run(bool with_baseline) {
  const World world = one_step_world(1, 63, 149);
  const WorldPairs pairs = sampled_pairs(world, 10, 0, 0);
  const O::Link link = with_baseline ? O::Link::linear : O::Link::logsigmoid;
  const auto options = [](O::Link l, double kappa) {
    return O{.kappa = kappa,
             .gamma = 0,
             .alpha = 0,
             .link = l,
             .margin = l == O::Link::linear ? O::Margin::policy : O::Margin::reference};
  };
  const auto rejected_logp = [&](const O& o, int64_t steps) {
    const Tensor rows =
        train_in_world(world, find_method("dpo-kernels"), &o, pairs, {.steps = steps, .learning_rate = 0.5});
    return response_logps(world.space, rows)[0].index_select(0, pairs.rejected).mean().item<double>();
  };
  const double released = rejected_logp(options(O::Link::linear, 1), 300),
               ours = rejected_logp(options(link, 0.5), 300);

  const Policy policy = tabular_policy(world.reference_rows + 0.3 * at::arange(63, at::kDouble).sin());
  const O plain = options(link, 0.4);
  const DpoOptions dpo{.beta = 0.4};
  const double difference =
      std::abs(loss_in_world(world, find_method("dpo-kernels"), &plain, pairs, policy).value.item<double>() -
               loss_in_world(world, find_method("dpo"), &dpo, pairs, policy).value.item<double>());

  // A frozen embedding: its kernel in the margin, with and without, under the linear link.
  RandomStream stream(0, "claim/dpo-kernels");
  const PairEmbeddings e{normals({10, 4}, stream), normals({10, 4}, stream), normals({10, 4}, stream)};
  const auto gradient = [&](double gamma) {
    const Policy fresh = tabular_policy(world.reference_rows);
    const O o{.gamma = gamma, .alpha = 0};
    const PreferenceBatch batch = preference_batch(world, pairs, {.divergences = {}}, fresh.rows());
    return torch::autograd::grad({dpo_kernels_loss(batch, e, kernel_parameters(o), {}, o).value},
                                 {fresh.parameters[0].tensor})[0];
  };
  ClaimResult result;
  result.tables.push_back(
      {.title = "10 pairs, after 300 steps",
       .columns = {text_column("link"), number_column("mean log-probability of rejected", {}, "nats")},
       .rows = {{"linear, as released", released}, {with_baseline ? "linear" : "logsigmoid", ours}}});
  result.assertions = {at_most("difference from DPO's loss without kernel and penalty", difference, 1e-12),
                       at_most("linear link: what a frozen embedding changes in the gradient",
                               (gradient(1) - gradient(0)).abs().max().item<double>(), 1e-15),
                       at_most("linear link: mean log-probability of rejected responses", released, -60),
                       at_least("log-sigmoid link: mean log-probability of rejected responses", ours, -40)};
  return result;
}

const RegisteredClaim claim{
    {.name = "dpo-kernels",
     .method = "dpo-kernels",
     .statement =
         "Without kernel and penalty the log-sigmoid link is DPO. The released linear link is unbounded below, "
         "so rejected responses sink without end, and a frozen embedding leaves its gradient as it is.",
     .paper_says =
         "Das et al. 2025 give the hybrid loss and report the best results with the mixture of kernels; that the "
         "released link is unbounded is a property of the formula.",
     .baseline = "the linear link as released",
     .run = run}};

}  // namespace
}  // namespace kullback
