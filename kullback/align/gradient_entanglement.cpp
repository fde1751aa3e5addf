#include "kullback/align/gradient_entanglement.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/align/kto.h"
#include "kullback/base/registry.h"
#include "kullback/train/pairwise.h"

namespace kullback {

using at::Tensor;
using Loss = EntanglementOptions::Loss;

namespace {

double price(const EntanglementOptions& o) {
  if (o.lambda) return *o.lambda;
  return o.loss == Loss::slic ? 0.1 : o.loss == Loss::cpo ? 1 : o.loss == Loss::dpop ? 50 : 0;
}

/// d_w and d_l by differentiation.
std::pair<Tensor, Tensor> weights(const PairLogps& given, const EntanglementOptions& o, Tensor& loss) {
  const at::AutoGradMode with_gradient(true);
  PairLogps pairs = given;
  pairs.chosen = given.chosen.detach().requires_grad_(true);
  pairs.rejected = given.rejected.detach().requires_grad_(true);
  const Tensor losses = margin_loss(pairs, o);
  loss = losses.detach();
  const auto gradients = torch::autograd::grad({losses.sum()}, {pairs.chosen, pairs.rejected});
  return {-gradients[0], gradients[1]};
}

}  // namespace

Tensor margin_loss(const PairLogps& p, const EntanglementOptions& o) {
  const Tensor w = p.chosen - p.reference_chosen, l = p.rejected - p.reference_rejected, d = w - l;
  const Tensor n_w = p.chosen_length.clamp_min(1), n_l = p.rejected_length.clamp_min(1);
  const double lambda = price(o);
  switch (o.loss) {
    case Loss::dpo: return logistic_loss(o.beta * d);
    case Loss::rdpo: return logistic_loss(o.beta * d + o.length_alpha * (p.chosen_length - p.rejected_length));
    case Loss::ipo: return ipo_loss(d, o.tau);
    case Loss::simpo: return logistic_loss(o.beta * (p.chosen / n_w - p.rejected / n_l) - o.gamma);
    case Loss::slic: return hinge_loss(p.chosen - p.rejected, o.delta) - lambda * p.chosen;
    case Loss::cpo: return logistic_loss(o.beta * (p.chosen - p.rejected)) - lambda * p.chosen;
    case Loss::rrhf: return hinge_loss(p.chosen / n_w - p.rejected / n_l, 0) - lambda * p.chosen;
    case Loss::dpop: return logistic_loss(o.beta * (d - lambda * at::relu(-w)));
    case Loss::sppo: return ipo_loss(w, o.beta) + ipo_loss(-l, o.beta);
    case Loss::kto:
      return o.lambda_w * kto_value_loss(o.beta * w - o.z0) + o.lambda_l * kto_value_loss(o.z0 - o.beta * l);
  }
  return d;
}

Entanglement entanglement(const PairLogps& pairs, const PairGradients& g, const EntanglementOptions& o) {
  Entanglement e;
  std::tie(e.chosen_weight, e.rejected_weight) = weights(pairs, o, e.loss);
  const Tensor square_w = g.chosen_norm.square(), square_l = g.rejected_norm.square();
  e.cosine = g.inner / (g.chosen_norm * g.rejected_norm);
  e.condition = g.inner / at::minimum(square_w, square_l);
  e.chosen_bound = e.chosen_weight * square_w;
  e.rejected_bound = e.rejected_weight * square_l;
  e.chosen_change = o.step * (e.chosen_bound - e.rejected_weight * g.inner);
  e.rejected_change = o.step * (e.chosen_weight * g.inner - e.rejected_bound);
  e.normalised_chosen_change = o.step * e.chosen_weight * (g.chosen_norm - g.inner / g.rejected_norm);
  e.normalised_rejected_change = o.step * e.chosen_weight * (g.inner / g.chosen_norm - g.rejected_norm);
  return e;
}

Tensor normalised_loss(const PairLogps& pairs, const PairGradients& g, const EntanglementOptions& o) {
  Tensor loss;
  const Tensor d = weights(pairs, o, loss).first;
  return d * (pairs.rejected / g.rejected_norm.detach() - pairs.chosen / g.chosen_norm.detach());
}

GatedLoss gated_loss(const PreferenceBatch& batch, const Tensor& chosen_gates, const Tensor& rejected_gates,
                     double beta, double lambda) {
  const Tensor gate_w = masked(at::sigmoid(chosen_gates), batch.chosen.mask),
               gate_l = masked(at::sigmoid(rejected_gates), batch.rejected.mask);
  const Tensor z = beta * (score(batch.chosen, gate_w).log_ratio() - score(batch.rejected, gate_l).log_ratio());
  const Tensor l1 = gate_w.sum(-1) + gate_l.sum(-1);
  return {.loss = mean_over_pairs(logistic_loss(z) + lambda * l1, batch), .margin = z, .l1 = l1};
}

PairGradients inner_products(const Tensor& chosen, const Tensor& rejected) {
  const Tensor w = chosen.flatten(1), l = rejected.flatten(1);
  return {.inner = (w * l).sum(-1), .chosen_norm = w.norm(2, -1), .rejected_norm = l.norm(2, -1)};
}

namespace {

Method method() {
  using O = EntanglementOptions;
  Method m;
  m.name = "gradient-entanglement";
  m.family = Family::measurement;
  m.summary = "Says which way the next step of a preference loss moves chosen and rejected log-probabilities, and why";
  m.formula =
      "g_w, g_l = gradients of the summed log-probabilities of chosen and rejected; d_w = -dL/dl_w, d_l = dL/dl_l\n"
      "change of chosen   = step * (d_w |g_w|^2 - d_l <g_w, g_l>)\n"
      "change of rejected = step * (d_w <g_w, g_l> - d_l |g_l|^2)\n"
      "condition = <g_w, g_l> / min(|g_w|^2, |g_l|^2): above 1 with equal weights, both move the same way";
  m.when =
      "When the likelihood of chosen responses falls in training, or that of rejected ones rises. Long common endings "
      "of "
      "the two responses entangle; dpop, cpo and slic give the chosen response more weight against it.";
  m.papers = {
      {"A Common Pitfall of Margin-based Language Model Alignment: Gradient Entanglement", "2410.13828", "ICLR 2025"}};
  m.needs = {"per-pair gradients of the responses' log-probabilities"};
  m.options = std::make_shared<Options<O>>(
      Options<O>()
          .option("loss", &O::loss,
                  {{"dpo", Loss::dpo},
                   {"rdpo", Loss::rdpo},
                   {"ipo", Loss::ipo},
                   {"simpo", Loss::simpo},
                   {"slic", Loss::slic},
                   {"cpo", Loss::cpo},
                   {"rrhf", Loss::rrhf},
                   {"dpop", Loss::dpop},
                   {"sppo", Loss::sppo},
                   {"kto", Loss::kto}},
                  "the loss whose step is looked at")
          .option("beta", &O::beta, positive, "scale of the margin")
          .option("length-alpha", &O::length_alpha, any_number, "rdpo: weight of the difference of lengths",
                  "authors' code")
          .option("tau", &O::tau, positive, "ipo: its beta")
          .option("gamma", &O::gamma, any_number, "simpo: the margin asked for")
          .option("delta", &O::delta, any_number, "slic: the margin asked for")
          .option("lambda", &O::lambda, non_negative,
                  "weight of the chosen response's own term; off: slic 0.1, cpo 1, rrhf 0, dpop 50")
          .option("lambda-w", &O::lambda_w, positive, "kto: weight of chosen responses")
          .option("lambda-l", &O::lambda_l, positive, "kto: weight of rejected responses")
          .option("z0", &O::z0, any_number, "kto: the reference point, beta times the KL")
          .option("step", &O::step, positive, "size of the step that is predicted"));
  return m;
}

const Registered gradient_entanglement{method()};

}  // namespace
}  // namespace kullback
