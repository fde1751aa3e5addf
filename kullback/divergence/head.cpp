#include "kullback/divergence/head.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {
namespace {

using at::Tensor;

Tensor logits_of(const Rows& rows) {
  Tensor z = rows.hidden;  // [N,V]
  if (rows.weight.defined()) {
    const Tensor w = rows.vocabulary > 0 ? rows.weight.narrow(0, 0, rows.vocabulary) : rows.weight;
    z = at::matmul(rows.hidden, w.t());
    if (rows.bias.defined()) z = z + rows.bias.narrow(0, 0, z.size(1));
  } else if (rows.vocabulary > 0) {
    z = z.narrow(1, 0, rows.vocabulary);
  }
  if (z.scalar_type() == at::kBFloat16) z = z.to(at::kFloat);
  if (rows.softcap > 0) z = rows.softcap * at::tanh(z / rows.softcap);
  return rows.temperature != 1 ? z / rows.temperature : z;
}

Tensor kl(const Tensor& first, const Tensor& second) {
  const Tensor terms = first.exp() * (first - second);
  return at::where(first == -INFINITY, at::zeros_like(terms), terms).sum(1);
}

}  // namespace

HeadStatistics head_statistics(const Rows& policy, const Rows& reference, const HeadRequest& request, const HeadSettings&) {
  const Tensor z = logits_of(policy);
  HeadStatistics out;
  const Tensor lse = z.logsumexp(1);
  const Tensor lq = z - lse.unsqueeze(1);
  if (request.logps) {
    const Tensor counted = request.labels != -100;
    const Tensor picked = lq.gather(1, request.labels.clamp_min(0).unsqueeze(1)).squeeze(1);
    out.logps = at::where(counted, picked, at::zeros_like(picked));
  }
  if (request.logsumexp) out.logsumexp = lse;
  if (request.entropy) out.entropy = -kl(lq, at::zeros_like(lq));
  if (request.scores.defined()) out.expected = lq.exp().matmul(request.scores.to(lq.scalar_type()));
  if (request.top_k > 0) std::tie(out.top_logps, out.top_ids) = lq.topk(request.top_k, 1);
  if (request.divergences.empty()) return out;
  const Tensor lp = logits_of(reference).detach().log_softmax(1);
  for (const auto& [d, direction] : request.divergences) {
    const bool policy_first = (direction == Direction::from_policy) == (d.name() == "kl");
    out.divergences.push_back(policy_first ? kl(lq, lp) : kl(lp, lq));
  }
  return out;
}

HeadStatistics head_statistics(const Rows& policy, const HeadRequest& request, const HeadSettings& settings) {
  if (!request.divergences.empty()) fail("a divergence between rows needs the reference's rows");
  return head_statistics(policy, {}, request, settings);
}

HeadLoss head_loss(const Rows& policy, const Rows& reference, const HeadRequest& request, const HeadStatistics& weights,
                   const HeadSettings& settings) {
  HeadStatistics s = head_statistics(policy, reference, request, settings);
  Tensor loss = at::zeros({}, policy.hidden.options());
  const auto add = [&](const Tensor& weight, Tensor& statistic) {
    if (weight.defined()) loss = loss + (weight * statistic).sum();
    if (statistic.defined()) statistic = statistic.detach();
  };
  add(weights.logps, s.logps);
  add(weights.logsumexp, s.logsumexp);
  add(weights.entropy, s.entropy);
  add(weights.expected, s.expected);
  add(weights.top_logps, s.top_logps);
  for (size_t i = 0; i < weights.divergences.size(); ++i) add(weights.divergences[i], s.divergences[i]);
  return {loss, s};
}

HeadLoss head_loss(const Rows& policy, const HeadRequest& request, const HeadStatistics& weights, const HeadSettings& settings) {
  if (!request.divergences.empty()) fail("a divergence between rows needs the reference's rows");
  return head_loss(policy, {}, request, weights, settings);
}

}  // namespace kullback
