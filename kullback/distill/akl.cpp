#include "kullback/distill/akl.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using HeadRule = AklOptions::HeadRule;

Tensor akl_head(const Tensor& teacher_logits, const AklOptions& o) {
  const Tensor p = at::softmax(teacher_logits, 1, at::kDouble);
  const auto [sorted, order] = at::sort(p, /*stable=*/true, 1, /*descending=*/true);
  const Tensor mass = sorted.cumsum(1).clamp_max(1);  // up to and with each token
  Tensor head = o.head_rule == HeadRule::below ? mass <= o.mu : mass - sorted < o.mu;
  head.select(1, 0).fill_(true);
  return at::empty_like(head).scatter_(1, order, head);
}

namespace {

/// [n,3]: the weight of forward KL and the two gaps.
Tensor gaps(const Tensor& student, const Tensor& teacher, const AklOptions& o) {
  const Tensor gap = (at::softmax(teacher, 1) - at::softmax(student, 1)).abs();
  const Tensor head = akl_head(teacher, o);
  const Tensor of_head = gap.masked_fill(~head, 0).sum(1), of_tail = gap.masked_fill(head, 0).sum(1);
  const Tensor both = of_head + of_tail;
  return at::stack({at::where(both == 0, 0.5, of_head / both), of_head, of_tail}, 1);
}

}  // namespace

AklLoss akl_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                 const AklOptions& o, double tokens_in_step, double sequences_in_step) {
  if (o.kd_ratio < 1 && !labels.defined())
    fail("option --kd-ratio: {} asks for cross-entropy, and there are no labels", o.kd_ratio);
  const CountedTokens c =
      counted_tokens(student, teacher, labels, mask, o.reduction, tokens_in_step, sequences_in_step);
  const Rows ours = at_temperature(c.student, o.temperature), theirs = at_temperature(c.teacher, o.temperature);
  const Tensor measured =
      row_block_values(ours, theirs, [&](const Tensor& s, const Tensor& t, int64_t) { return gaps(s, t, o); })
          .to(at::kDouble)
          .reshape({-1, 3});
  const Tensor w = measured.select(1, 0);

  HeadRequest request;
  request.divergences = {divergence("kl").from_reference(), divergence("reverse-kl").from_reference()};
  HeadStatistics weights;
  weights.divergences = {o.kd_ratio * c.weights * w, o.kd_ratio * c.weights * (1 - w)};
  const HeadLoss kl = head_loss(ours, theirs, request, weights);
  const Tensor forward = kl.statistics.divergences[0].to(at::kDouble),
               reverse = kl.statistics.divergences[1].to(at::kDouble);
  // A divergence of weight 0 takes no part, infinite or not.
  const Tensor per_token = at::where(w == 0, 0.0, w * forward) + at::where(w == 1, 0.0, (1 - w) * reverse);

  AklLoss result;
  result.loss = kl.loss;
  result.kd_loss = weighted_sum(c.weights, per_token);
  if (labels.defined()) {
    const HeadLoss label = cross_entropy(c.student, c.labels, (1 - o.kd_ratio) * c.weights);
    result.loss = result.loss + label.loss;
    result.ce_loss = -weighted_sum(c.weights, label.statistics.logps);
  }
  const auto back = [&](const Tensor& values) { return at_places(values, c.places, mask); };
  result.weight_forward = back(w);
  result.gap_head = back(measured.select(1, 1)), result.gap_tail = back(measured.select(1, 2));
  result.forward_kl = back(forward), result.reverse_kl = back(reverse), result.per_token = back(per_token);
  return result;
}

namespace {

const Registered akl{
    distillation_method<AklOptions>("akl")
        .summary("Adaptive KL: forward and reverse KL weighted by the gaps on the head and the tail of each law")
        .formula("loss = (1 - kd_ratio) CE + kd_ratio mean over tokens of w KL(p || q) + (1 - w) KL(q || p)\n"
                 "w = g_head / (g_head + g_tail), g = sum |p - q| over the head or the tail of p, without gradient")
        .when("Where neither direction is wanted alone: forward KL fits the head first, reverse KL follows what the "
              "student says already; given time all three end at the same student.")
        .paper({"Rethinking Kullback-Leibler Divergence in Knowledge Distillation for Large Language Models",
                "2404.02657", "COLING 2025"})
        .option("mu", &AklOptions::mu, fraction, "mass of the head of the teacher's law", "authors")
        .option("head-rule", &AklOptions::head_rule, {{"below", HeadRule::below}, {"reach", HeadRule::reach}},
                "below: the token that crosses the mass is tail, as in the authors' code; reach: head, as in the paper")
        .option("temperature", &AklOptions::temperature, positive, "divides the logits of both models", "authors")
        .option("kd-ratio", &AklOptions::kd_ratio, fraction,
                "weight of the divergence; the rest is cross-entropy on the labels", "authors' scripts: 0.5")
        .option("reduction", &AklOptions::reduction, reductions(),
                "mean over all counted tokens, mean over the sequences' means, or sum")
        .loss([](const DistillationBatch& b, const AklOptions& o) {
          const AklLoss l = akl_loss(b.student, b.teacher, b.labels, b.mask, o, b.tokens_in_step, b.sequences_in_step);
          const auto mean = [&](const at::Tensor& values) { return values.masked_select(b.mask); };
          return DistillationLoss{.value = l.loss,
                                  .parts = {{"kd_loss", l.kd_loss},
                                            {"ce_loss", l.ce_loss},
                                            {"weight_forward", mean(l.weight_forward)},
                                            {"gap_head", mean(l.gap_head)},
                                            {"gap_tail", mean(l.gap_tail)},
                                            {"forward_kl", mean(l.forward_kl)},
                                            {"reverse_kl", mean(l.reverse_kl)}}};
        })};

}  // namespace
}  // namespace kullback
