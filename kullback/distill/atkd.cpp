#include "kullback/distill/atkd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {
namespace {

using at::Tensor;
using Split = AtkdOptions::Split;
using Setting = AtkdOptions::Setting;
using SampleSource = AtkdOptions::SampleSource;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Rows of logits [n,V] taken apart at their labels [n].
struct SplitRows {
  Tensor target;       // [n,2] ln p(label), ln (1 - p(label))
  Tensor others;       // [n,V] logits without the label's; 0 throughout where no other token has any mass
  Tensor none;         // [n] bool: no other token has any
  Tensor uncertainty;  // [n] ln (1 - p(label))
};

SplitRows split_at(const Tensor& logits, const Tensor& labels) {
  SplitRows s;
  const Tensor label = labels.unsqueeze(1);
  const Tensor masked = logits.scatter(1, label, -infinity);
  s.none = (masked == -infinity).all(1);
  s.others = masked.masked_fill(s.none.unsqueeze(1), 0);
  const Tensor total = at::logsumexp(logits, 1);
  s.uncertainty = (at::logsumexp(s.others, 1) - total).masked_fill(s.none, -infinity);
  s.target = at::stack({logits.gather(1, label).squeeze(1) - total, s.uncertainty}, 1);
  return s;
}

/// [n,3]: KL(first || second) at the label, among the other tokens, and ln of the factor of the second in the whole.
Tensor parts(const Tensor& student, const Tensor& teacher, const Tensor& labels, Setting setting) {
  const SplitRows q = split_at(student, labels), p = split_at(teacher, labels);
  const bool forward = setting == Setting::forward;
  const RowDivergence kl = forward ? divergence("kl").from_reference() : divergence("kl").from_policy();
  const SplitRows &first = forward ? p : q, &second = forward ? q : p;
  const Tensor others =
      row_divergence(kl, q.others, p.others).masked_fill(second.none, infinity).masked_fill(first.none, 0);
  return at::stack({row_divergence(kl, q.target, p.target), others, first.uncertainty.detach()}, 1);
}

/// Which of the tokens are hard: ln of the teacher's uncertainty [C] -> [C] bool.
Tensor hard_tokens(const Tensor& uncertainty, const AtkdOptions& o) {
  const int64_t count = uncertainty.numel();
  if (count == 0) return at::zeros({0}, at::kBool);
  if (o.split == Split::median) return uncertainty >= std::get<0>(at::sort(uncertainty))[(count - 1) / 2];
  const auto order = at::argsort(uncertainty, /*stable=*/true, 0, /*descending=*/true);
  const int64_t hard = static_cast<int64_t>(std::ceil(o.hard_fraction * static_cast<double>(count) - 1e-9));
  return at::zeros({count}, at::kBool).index_fill(0, order.narrow(0, 0, std::min(hard, count)), true);
}

}  // namespace

AtkdLoss atkd_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                   const AtkdOptions& o, double tokens_in_step) {
  const CountedTokens c = counted_tokens(student, teacher, labels, mask);
  const Rows ours = at_temperature(c.student, o.student_temperature),
             theirs = at_temperature(c.teacher, o.teacher_temperature);
  const auto labels_of = [&](const Tensor& rows, int64_t first) { return c.labels.narrow(0, first, rows.size(0)); };

  const Tensor uncertainty = row_block_values(theirs, theirs, [&](const Tensor&, const Tensor& t, int64_t first) {
                               return split_at(t, labels_of(t, first)).uncertainty;
                             }).to(at::kDouble);
  const Tensor hard = hard_tokens(uncertainty, o), easy = ~hard;
  const Tensor easy_count = easy.sum().to(at::kDouble), hard_count = hard.sum().to(at::kDouble);
  const auto mean_over = [](const Tensor& group, const Tensor& count) { return group / count.clamp_min(1); };
  const Tensor of_easy = mean_over(easy, easy_count), of_hard = mean_over(hard, hard_count);  // [C]

  const double share = tokens_in_step > 0 ? static_cast<double>(c.places.numel()) / tokens_in_step : 1;
  const Tensor of_tkd = (1 - o.lambda) * of_hard, of_dkd = o.lambda * of_easy + (1 - o.lambda) * of_hard;
  const Tensor weights = share * at::stack({of_tkd, of_dkd, at::zeros_like(of_tkd)}, 1);  // [C,3]
  const RowBlockLoss walked = row_block_loss(
      ours, theirs,
      [&](const Tensor& s, const Tensor& t, int64_t first) { return parts(s, t, labels_of(t, first), o.setting); },
      weights);
  const Tensor values = walked.values.to(at::kDouble).reshape({-1, 3});
  const Tensor tkd = values.select(1, 0), dkd = values.select(1, 1), factor = values.select(1, 2).exp();

  AtkdLoss result;
  result.loss = walked.loss;
  result.easy_dkd = weighted_sum(of_easy, dkd);
  result.hard_tkd = weighted_sum(of_hard, tkd), result.hard_dkd = weighted_sum(of_hard, dkd);
  result.easy_tokens = easy_count, result.hard_tokens = hard_count;
  result.token_mean_kl = weighted_sum(c.weights, tkd + at::where(factor == 0, 0.0, factor * dkd));
  const auto back = [&](const Tensor& v) { return at_places(v, c.places, mask); };
  result.hard = back(hard), result.uncertainty = back(uncertainty.exp());
  result.tkd = back(tkd), result.dkd = back(dkd);
  return result;
}

namespace {

DistillationNeeds needs(const AtkdOptions& o) {
  DistillationNeeds needs;
  switch (o.sample_source) {
    case SampleSource::gt: break;
    case SampleSource::student: needs.sources = {.data = 0, .student = 1}; break;
    case SampleSource::mix_request: needs.sources = {.data = 0.5, .student = 0.5}; break;
    case SampleSource::mix_token:
      needs.sources = {.data = 0, .both = 1};
      needs.together = token_mixture(0.5);
      break;
  }
  return needs;
}

const Registered atkd{
    distillation_method<AtkdOptions>("atkd")
        .summary("Adaptive teaching: easy tokens learn the teacher's other tokens, hard ones the label as well")
        .formula("loss = lambda mean_easy DKD + (1 - lambda) (mean_hard TKD + mean_hard DKD)\n"
                 "KL(p || q) = TKD + u DKD, u = 1 - p(label); TKD: of (label, rest); DKD: among the rest\n"
                 "hard: u >= its lower median over the batch")
        .when("With a large, confident teacher, whose plain KL says little beyond the label. Tokens are split within "
              "each batch of the forward pass, as in the authors' code: a batch of very few tokens splits badly.")
        .paper({"Revisiting Knowledge Distillation for Autoregressive Language Models", "2402.11890", "ACL 2024"})
        .option("lambda", &AtkdOptions::lambda, fraction, "weight of the tokens that the teacher is sure of", "paper")
        .option(
            "split", &AtkdOptions::split, {{"median", Split::median}, {"topk", Split::topk}},
            "median: hard from the lower median of the teacher's uncertainty on; topk: the hard-fraction of the most "
            "uncertain",
            "authors; paper: topk")
        .option("hard-fraction", &AtkdOptions::hard_fraction,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true}, "topk: share of hard tokens",
                "paper")
        .option("setting", &AtkdOptions::setting, {{"forward", Setting::forward}, {"reverse", Setting::reverse}},
                "which KL is split: forward from the teacher to the student, or reverse")
        .option("student-temperature", &AtkdOptions::student_temperature, positive, "divides the student's logits")
        .option("teacher-temperature", &AtkdOptions::teacher_temperature, positive, "divides the teacher's logits")
        .option("sample-source", &AtkdOptions::sample_source,
                {{"gt", SampleSource::gt},
                 {"student", SampleSource::student},
                 {"mix_request", SampleSource::mix_request},
                 {"mix_token", SampleSource::mix_token}},
                "whose responses: the data's, the student's, either at each step, or drawn by both, token by token")
        .needs(needs)
        .loss([](const DistillationBatch& b, const AtkdOptions& o) {
          const AtkdLoss l = atkd_loss(b.student, b.teacher, b.labels, b.mask, o, b.tokens_in_step);
          return DistillationLoss{.value = l.loss,
                                  .parts = {{"easy_dkd", l.easy_dkd.unsqueeze(0)},
                                            {"hard_tkd", l.hard_tkd.unsqueeze(0)},
                                            {"hard_dkd", l.hard_dkd.unsqueeze(0)},
                                            {"easy_tokens", l.easy_tokens},
                                            {"hard_tokens", l.hard_tokens},
                                            {"uncertainty", l.uncertainty.masked_select(b.mask)}}};
        })};

}  // namespace
}  // namespace kullback
