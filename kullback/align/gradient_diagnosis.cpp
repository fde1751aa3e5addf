#include "kullback/align/gradient_diagnosis.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/align/head_gradients.h"
#include "kullback/base/error.h"
#include "kullback/divergence/head.h"

namespace kullback {
namespace {

using at::Tensor;

/// Log-probabilities of one response under a model. [T]
Tensor response_logps(const Transformer& model, const ResponseBatch& batch, AdapterUse use) {
  return label_logps(model.head_rows(response_hidden(model, batch, use)), batch.labels);
}

std::vector<Tensor> weights_of(Transformer& policy, DiagnosedParameters which) {
  if (which == DiagnosedParameters::head) return {};
  std::vector<Tensor> tensors;
  policy.set_trainable(which == DiagnosedParameters::all);
  for (const NamedTensor& one : which == DiagnosedParameters::all ? policy.parameters() : policy.adapter())
    tensors.push_back(one.tensor);
  if (tensors.empty()) fail("option --parameters: lora needs a model with an adapter");
  return tensors;
}

/// Summed log-probability of a response and its gradient over the weights, or in closed form over the head's own.
std::pair<double, std::vector<Tensor>> logp_and_gradient(const Transformer& policy, const Sequence& sequence,
                                                         const std::vector<Tensor>& weights) {
  const ResponseBatch batch = response_batch(std::vector<const Sequence*>{&sequence});
  if (weights.empty()) {
    const at::NoGradGuard no_grad;
    const Tensor hidden = response_hidden(policy, batch).to(at::kFloat).unsqueeze(0);
    const HeadSide side{hidden, batch.labels.unsqueeze(0), at::ones({1, hidden.size(1)}, at::kBool)};
    return {response_logps(policy, batch, AdapterUse::on).sum(at::kDouble).item<double>(),
            {head_gradients(policy.head.to(at::kFloat), side)}};
  }
  const Tensor sum = response_logps(policy, batch, AdapterUse::on).sum();
  std::vector<Tensor> gradients = torch::autograd::grad({sum}, weights, {}, {}, false, /*allow_unused=*/true);
  return {sum.item<double>(), std::move(gradients)};
}

double inner(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() && b[i].defined()) sum += (a[i] * b[i]).sum(at::kDouble).item<double>();
  }
  return sum;
}

}  // namespace

GradientDiagnosis diagnose_gradients(Transformer policy, Reference reference, const std::vector<PreferencePair>& pairs,
                                     DiagnosedParameters which, const EntanglementOptions& options,
                                     const std::function<void(int64_t done)>& progress) {
  const std::vector<Tensor> weights = weights_of(policy, which);
  GradientDiagnosis result;
  std::vector<double> logps[2], references[2], lengths[2], inners, norms[2];
  for (const PreferencePair& pair : pairs) {
    if (pair.chosen.counted() == 0 || pair.rejected.counted() == 0) continue;
    std::vector<Tensor> gradients[2];
    for (const int side : {0, 1}) {
      const Sequence& sequence = side == 0 ? pair.chosen : pair.rejected;
      const auto [logp, gradient] = logp_and_gradient(policy, sequence, weights);
      gradients[side] = gradient;
      const at::NoGradGuard no_grad;
      const ResponseBatch batch = response_batch(std::vector<const Sequence*>{&sequence});
      logps[side].push_back(logp);
      references[side].push_back(
          response_logps(*reference.model, batch, reference.use).sum(at::kDouble).item<double>());
      lengths[side].push_back(static_cast<double>(sequence.counted()));
      norms[side].push_back(std::sqrt(inner(gradient, gradient)));
    }
    inners.push_back(inner(gradients[0], gradients[1]));
    result.lines.push_back(pair.line);
    if (progress) progress(std::ssize(result.lines));
  }
  if (inners.empty()) fail("no pair has tokens on both sides");
  const auto tensor = [](const std::vector<double>& values) { return at::tensor(values, at::kDouble); };
  result.logps = {tensor(logps[0]),      tensor(logps[1]),   tensor(references[0]),
                  tensor(references[1]), tensor(lengths[0]), tensor(lengths[1])};
  result.gradients = {tensor(inners), tensor(norms[0]), tensor(norms[1])};
  result.entanglement = entanglement(result.logps, result.gradients, options);
  return result;
}

StepEffect step_effect(const Transformer& policy, const PreferencePair& pair, const Tensor& loss,
                       const std::vector<Tensor>& weights) {
  const std::vector<Tensor> of_loss = torch::autograd::grad({loss}, weights, {}, {}, false, /*allow_unused=*/true);
  const std::vector<Tensor> g_w = logp_and_gradient(policy, pair.chosen, weights).second,
                            g_l = logp_and_gradient(policy, pair.rejected, weights).second;
  const double both = inner(g_w, g_l), w = inner(g_w, g_w), l = inner(g_l, g_l);
  const bool moves = w > 0 && l > 0;
  return {.cosine = moves ? both / std::sqrt(w * l) : 0,
          .condition = moves ? both / std::min(w, l) : 0,
          .chosen = -inner(g_w, of_loss),
          .rejected = -inner(g_l, of_loss)};
}

}  // namespace kullback
