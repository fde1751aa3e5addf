#include "kullback/distill/sinkd.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using Normalize = SinkdOptions::Normalize;
using Problem = SinkdOptions::Problem;

SinkhornPlan sinkhorn_plan(const Tensor& student_logits, const Tensor& teacher_logits, const SinkdOptions& o) {
  SinkhornPlan result;
  result.cost = at::cdist(at::softmax(student_logits, 1), at::softmax(teacher_logits, 1), 1);
  Tensor log_plan = -result.cost / o.epsilon;
  for (int64_t i = 0; i < o.iterations; ++i) {
    log_plan = log_plan - at::logsumexp(log_plan, 1, true);
    log_plan = log_plan - at::logsumexp(log_plan, 0, true);
  }
  result.plan = log_plan.exp();
  return result;
}

namespace {

/// First row and number of rows of each problem among the counted tokens, which are in row-major order.
std::vector<std::pair<int64_t, int64_t>> problems(const Tensor& mask, const SinkdOptions& o) {
  const Tensor counts = o.rows == Problem::sequence ? mask.sum(1) : mask.sum().reshape({1});  // [B] or [1]
  std::vector<std::pair<int64_t, int64_t>> result;
  int64_t first = 0;
  for (int64_t b = 0; b < counts.numel(); ++b) {
    for (int64_t left = counts[b].item<int64_t>(); left > 0;) {
      const int64_t rows = std::min(left, o.max_rows);
      result.emplace_back(first, rows);
      first += rows, left -= rows;
    }
  }
  return result;
}

}  // namespace

SinkdLoss sinkd_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                     const SinkdOptions& o, double tokens_in_step) {
  const CountedTokens c = counted_tokens(student, teacher, labels, mask, Reduction::token_mean, tokens_in_step);
  const double rows = tokens_in_step > 0 ? tokens_in_step : std::max<double>(1, c.places.numel());
  const double scale = o.sinkhorn_weight / (o.normalize == Normalize::rows ? rows : 1);
  const Rows ours = at_temperature(c.student, o.temperature), theirs = at_temperature(c.teacher, o.temperature);
  SinkdLoss result;
  result.loss = at::zeros({}, at::kDouble);
  if (o.sinkhorn_weight > 0) result.sinkhorn = at::zeros({}, at::kDouble);
  for (const auto& [first, count] : problems(mask, o)) {
    if (o.sinkhorn_weight == 0) break;
    const Tensor places = at::arange(first, first + count, at::kLong);
    const RowBlockLoss walked = row_block_loss(
        rows_at(ours, places), rows_at(theirs, places),
        [&](const Tensor& s, const Tensor& t, int64_t) {
          const SinkhornPlan p = sinkhorn_plan(s, t, o);
          return ((o.detach_plan ? p.plan.detach() : p.plan) * p.cost).sum(1);
        },
        at::full({count}, scale, at::kDouble),
        std::numeric_limits<int64_t>::max());  // the rows of a problem go together
    result.loss = result.loss + walked.loss;
    result.sinkhorn = result.sinkhorn + walked.values.to(at::kDouble).sum();
  }
  if (!labels.defined()) return result;
  HeadRequest request;
  request.divergences = {divergence("kl").from_reference()};
  HeadStatistics weights;
  weights.divergences = {o.kl_weight * c.weights};
  const HeadLoss kl = head_loss(at_temperature(c.student, o.kl_temperature),
                                at_temperature(c.teacher, o.kl_temperature), request, weights);
  const HeadLoss label = cross_entropy(c.student, c.labels, (1 - o.kl_weight) * c.weights);
  result.loss = result.loss + kl.loss + label.loss;
  result.forward_kl = weighted_sum(c.weights, kl.statistics.divergences[0].to(at::kDouble));
  result.ce_loss = -weighted_sum(c.weights, label.statistics.logps.to(at::kDouble));
  return result;
}

namespace {

const Registered sinkd{
    distillation_method<SinkdOptions>("sinkd")
        .summary(
            "Sinkhorn distillation: the batch's laws as two clouds, and the entropic cost of moving one to the other")
        .formula("loss = (1 - kl_weight) CE + kl_weight KL(p || q) + sinkhorn_weight sum_ij P_ij D_ij / rows\n"
                 "D_ij = sum_v |q_i(v) - p_j(v)|, P: exp(-D / epsilon) with rows, then columns scaled to 1, iterations "
                 "times")
        .when("Beside KL where teacher and student hardly overlap. Never without KL or cross-entropy: the cost alone "
              "does "
              "not know which row belongs to which, and pulls all rows to their centre.")
        .paper({"Sinkhorn Distance Minimization for Knowledge Distillation", "2402.17110", "LREC-COLING 2024"})
        .option("temperature", &SinkdOptions::temperature, positive, "divides the logits of the laws that are moved",
                "authors")
        .option("epsilon", &SinkdOptions::epsilon, positive, "entropic strength", "authors")
        .option("iterations", &SinkdOptions::iterations, at_least(1), "scalings of rows and columns", "authors")
        .option("kl-weight", &SinkdOptions::kl_weight, fraction, "weight of KL; the rest is cross-entropy",
                "authors' scripts")
        .option("sinkhorn-weight", &SinkdOptions::sinkhorn_weight, non_negative, "weight of the cost", "authors")
        .option("kl-temperature", &SinkdOptions::kl_temperature, positive, "divides the logits of the KL's laws",
                "authors' scripts")
        .option("normalize", &SinkdOptions::normalize, {{"sum", Normalize::sum}, {"rows", Normalize::rows}},
                "whether the cost is divided by the number of rows", "authors: sum, times 0.001 or 0.0008")
        .option("rows", &SinkdOptions::rows, {{"batch", Problem::batch}, {"sequence", Problem::sequence}},
                "one problem over all tokens of a batch, or one a sequence")
        .option("detach-plan", &SinkdOptions::detach_plan, "take the plan for given in the gradient")
        .option("problem-rows", &SinkdOptions::max_rows, at_least(1),
                "larger problems are cut into several of so many rows")
        .loss([](const DistillationBatch& b, const SinkdOptions& o) {
          const SinkdLoss l = sinkd_loss(b.student, b.teacher, b.labels, b.mask, o, b.tokens_in_step);
          return DistillationLoss{
              .value = l.loss,
              .parts = {{"sinkhorn", l.sinkhorn}, {"forward_kl", l.forward_kl}, {"ce_loss", l.ce_loss}}};
        })};

}  // namespace
}  // namespace kullback
