#include "kullback/distill/pd.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using Adaptive = PdOptions::Adaptive;
using Loss = PdOptions::Loss;
using Schedule = PdOptions::Schedule;

namespace {

/// The distillation loss of rows: student logits z [n,V], target law f [n,K] -> [n].
Tensor row_loss(const Tensor& z, const Tensor& ids, const Tensor& f, const PdTarget& t, const PdOptions& o) {
  if (o.kd_loss == Loss::mse_logit) {
    const Tensor count = t.kept.sum(1, true).to(z.scalar_type());
    const auto centred = [&](const Tensor& values) {
      const Tensor kept = values.masked_fill(~t.kept, 0);
      return (kept - kept.sum(1, true) / count).masked_fill(~t.kept, 0);
    };
    return ((centred(z.gather(1, ids)) - centred(t.logps.to(z.scalar_type()))).square().sum(1, true) / count)
        .squeeze(1);
  }
  const Tensor log_q = at::log_softmax(z / o.student_temperature, 1);
  const Tensor at_kept = log_q.gather(1, ids);
  if (o.kd_loss == Loss::mse) {
    const Tensor q = at_kept.exp();
    return log_q.exp().square().sum(1) + (f.square() - 2 * f * q).sum(1);  // sum over all V of (q - f)^2
  }
  const Tensor cross_entropy = -pd_expected(f, at_kept);
  return o.kd_loss == Loss::nll ? cross_entropy : cross_entropy + pd_expected(f, f.log());
}

}  // namespace

double pd_schedule(Schedule kind, int64_t step, int64_t steps, double maximum, double end, double warmup, double decay,
                   int64_t period) {
  const auto share = [&](double of) { return static_cast<int64_t>(std::ceil(of * static_cast<double>(steps) - 1e-9)); };
  const auto s = static_cast<double>(step), last = static_cast<double>(std::max<int64_t>(steps - 1, 1));
  const auto cosine = [&](double turn) {
    return end + (maximum - end) * 0.5 * (1 + std::cos(std::numbers::pi * turn));
  };
  const int64_t warm = kind == Schedule::cosine || kind == Schedule::wsd ? share(warmup) : 0;
  if (step < warm) return maximum * (s + 1) / static_cast<double>(warm);
  switch (kind) {
    case Schedule::constant: return maximum;
    case Schedule::linear_increase: return maximum * s / last;
    case Schedule::linear_decrease: return maximum * (1 - s / last);
    case Schedule::period: return step / period % 2 == 0 ? maximum : end;
    case Schedule::cosine:
      return cosine(static_cast<double>(step - warm) / static_cast<double>(std::max<int64_t>(steps - 1 - warm, 1)));
    case Schedule::wsd: {
      const int64_t down = share(decay);
      if (step < steps - down) return maximum;
      return cosine(static_cast<double>(step - (steps - down) + 1) / static_cast<double>(down));
    }
  }
  return maximum;
}

PdLoss pd_loss(const Rows& student, const PdTarget& target, const Tensor& labels, const Tensor& mask, double alpha,
               const PdOptions& o, double tokens_in_step, const Tensor& weight) {
  const CountedTokens c =
      counted_tokens(student, student, labels, mask, Reduction::token_mean, tokens_in_step, 0, weight);
  const Tensor of_row = pd_row_weights(target, o), law = pd_law(target, o);
  const auto f = [&](const Tensor& z, const Tensor&, int64_t first) {
    const auto part = [&](const Tensor& values) { return values.narrow(0, first, z.size(0)); };
    const PdTarget here{part(target.ids), part(target.logps), part(target.kept)};
    const Tensor kd = part(of_row).to(z.scalar_type()) * row_loss(z, here.ids, part(law).to(z.scalar_type()), here, o);
    const Tensor lm = -at::log_softmax(z, 1).gather(1, part(c.labels).unsqueeze(1)).squeeze(1);
    return at::stack({kd, lm}, 1);
  };
  Rows none;  // what the target holds is all of the teacher that is needed
  none.hidden = at::zeros({c.places.size(0), 1}, c.student.hidden.options().requires_grad(false));
  const RowBlockLoss walked =
      row_block_loss(c.student, none, f, at::stack({alpha * c.weights, (1 - alpha) * c.weights}, 1));
  const Tensor values = walked.values.to(at::kDouble);
  const auto mean = [&](const Tensor& of_tokens) { return weighted_sum(c.weights, of_tokens); };
  return {.loss = walked.loss,
          .lm_loss = mean(values.select(1, 1)),
          .kd_loss = mean(values.select(1, 0)),
          .target_entropy = mean(-pd_expected(law, law.log())),
          .kept_mass = target.logps.to(at::kDouble).exp().masked_fill(~target.kept, 0).sum(1)};
}

namespace {

double alpha_at(const PdOptions& o, int64_t step, int64_t steps) {
  const double most = o.alpha_max.value_or(o.source == PdOptions::Source::online ? 0.1 : 0.9);
  return pd_schedule(o.alpha_schedule, step, steps, most, o.alpha_end, o.alpha_warmup, o.alpha_decay, o.alpha_period);
}

DistillationLoss loss(const DistillationBatch& b, const PdOptions& o) {
  const Rows teacher = rows_at(b.teacher, b.mask.reshape(-1).nonzero().squeeze(1));
  const PdTarget target =
      b.teacher_truncated ? pd_truncate(teacher, 1, b.teacher_truncated) : pd_truncate(teacher, o.p, o.k);
  const double alpha = alpha_at(o, b.step, b.steps);
  PdLoss l = pd_loss(b.student, target, b.labels, b.mask, alpha, o, b.tokens_in_step, b.weight);
  return {.value = l.loss,
          .parts = {{"lm_loss", l.lm_loss},
                    {"kd_loss", l.kd_loss},
                    {"target_entropy", l.target_entropy},
                    {"kept_mass", l.kept_mass},
                    {"alpha", at::full({1}, alpha, at::kDouble)}}};
}

const Registered pd{
    distillation_method<PdOptions>("pd")
        .summary("Pre-training distillation: learn from the top of the teacher's rows, stored or live, beside the text")
        .formula(
            "loss = (1 - alpha) L_lm + alpha L_kd, alpha by schedule\n"
            "kept = first k of the shortest prefix of the teacher's row with mass >= p (softmax at temperature 1)\n"
            "F = softmax(kept / temperature); nll: -sum_kept F log P; kld: sum_kept F log(F / P);\n"
            "mse: sum_V (P - F)^2; mse_logit: mean_kept (centred student logit - centred teacher log-probability)^2\n"
            "P = softmax(student / student_temperature) over the whole vocabulary")
        .when("When the teacher runs over a large corpus once and students are trained on what was kept: `kullback "
              "teacher record` makes the store, --teacher-record reads it. Best with --schedule wsd for the learning "
              "rate too. Very small students gain little.")
        .paper({"Pre-training Distillation for Large Language Models: A Design Space Exploration", "2410.16215",
                "ACL 2025"})
        .option("p", &PdOptions::p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "mass of the teacher's row that is kept, before k cuts it", "the paper's best recipe")
        .option("k", &PdOptions::k, at_least(1), "tokens of the teacher's row that are kept at most",
                "the paper's best recipe; its first experiments 100")
        .option("temperature", &PdOptions::temperature, positive, "of the teacher's target", "the paper's best recipe")
        .option("student-temperature", &PdOptions::student_temperature, positive, "of the student's law")
        .option("kd-loss", &PdOptions::kd_loss,
                {{"nll", Loss::nll}, {"kld", Loss::kld}, {"mse", Loss::mse}, {"mse_logit", Loss::mse_logit}},
                "the distillation loss; nll and kld have the same gradient", "the paper's best recipe")
        .option("adaptive", &PdOptions::adaptive,
                {{"none", Adaptive::none},
                 {"std", Adaptive::std},
                 {"entropy", Adaptive::entropy},
                 {"wttm", Adaptive::wttm}},
                "temperature of each row by the spread or entropy of what is kept; wttm: a weight instead")
        .option("tau-low", &PdOptions::tau_low, positive, "entropy: temperature of the flattest row")
        .option("tau-high", &PdOptions::tau_high, positive, "entropy: temperature of the sharpest row")
        .option("alpha-schedule", &PdOptions::alpha_schedule,
                {{"constant", Schedule::constant},
                 {"linear_increase", Schedule::linear_increase},
                 {"linear_decrease", Schedule::linear_decrease},
                 {"period", Schedule::period},
                 {"cosine", Schedule::cosine},
                 {"wsd", Schedule::wsd}},
                "course of alpha over the run", "the paper's best recipe")
        .option("alpha-max", &PdOptions::alpha_max, fraction,
                "largest weight of the distillation loss; off: 0.9 offline, 0.1 online",
                "the paper's best static value")
        .option("alpha-end", &PdOptions::alpha_end, fraction,
                "weight at the end of cosine and wsd, and between periods")
        .option("alpha-warmup", &PdOptions::alpha_warmup, fraction,
                "cosine, wsd: share of the steps over which it rises", "one summary of the paper; 0.01 is usual")
        .option("alpha-decay", &PdOptions::alpha_decay, fraction, "wsd: share of the steps over which it falls",
                "one summary of the paper; 0.1 is usual")
        .option("alpha-period", &PdOptions::alpha_period, at_least(1), "period: steps at the maximum, then at the end")
        .option("source", &PdOptions::source,
                {{"offline", PdOptions::Source::offline}, {"online", PdOptions::Source::online}},
                "online: the rows were kept while the teacher itself was trained, so that little weight suits them")
        .needs([](const PdOptions&) { return DistillationNeeds{.weights = true}; })
        .loss(loss)};

}  // namespace
}  // namespace kullback
