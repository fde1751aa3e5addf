#include "kullback/distill/pd.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/reduction.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/distillation.h"

namespace kullback {

using at::Tensor;
using Loss = PdOptions::Loss;
using Adaptive = PdOptions::Adaptive;
using Schedule = PdOptions::Schedule;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// log F [N,K]: the kept row at a temperature [N,1], -inf where nothing is kept.
Tensor log_law(const PdTarget& t, const Tensor& temperature) {
  return at::log_softmax(t.logps.to(at::kDouble).masked_fill(~t.kept, -infinity) / temperature, 1);
}

/// sum_v F_v g_v, a token of probability 0 adding nothing whatever g is there.
Tensor expected(const Tensor& law, const Tensor& g) { return (law * g.masked_fill(law == 0, 0)).sum(1); }

/// Each row's temperature. [N,1]
Tensor temperatures(const PdTarget& t, const PdOptions& o) {
  const Tensor fixed = at::full({t.ids.size(0), 1}, o.temperature, at::kDouble);
  const Tensor count = t.kept.sum(1, true).to(at::kDouble);
  if (o.adaptive == Adaptive::std) {
    const Tensor logps = t.logps.to(at::kDouble).masked_fill(~t.kept, 0);
    const Tensor mean = logps.sum(1, true) / count;
    const Tensor std = ((logps - mean).square().masked_fill(~t.kept, 0).sum(1, true) / count).sqrt();
    return at::where(std < 1e-6, fixed, o.temperature * std);
  }
  if (o.adaptive == Adaptive::entropy) {
    const Tensor log_f = log_law(t, at::ones({1}, at::kDouble)), f = log_f.exp();
    const Tensor share = at::where(count > 1, -expected(f, log_f).unsqueeze(1) / at::log(count), 0);
    return o.tau_high - (o.tau_high - o.tau_low) * share;
  }
  return fixed;
}

/// What each row's distillation loss is multiplied by. [N]
Tensor row_weights(const PdTarget& t, const PdOptions& o) {
  if (o.adaptive != Adaptive::wttm) return at::ones({t.ids.size(0)}, at::kDouble);
  return (log_law(t, at::ones({1}, at::kDouble)) / o.temperature).exp().sum(1);
}

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
  const Tensor cross_entropy = -expected(f, at_kept);
  return o.kd_loss == Loss::nll ? cross_entropy : cross_entropy + expected(f, f.log());
}

}  // namespace

PdTarget pd_truncate(const Rows& teacher, double p, int64_t k) {
  const int64_t vocabulary = teacher.vocabulary > 0     ? teacher.vocabulary
                             : teacher.weight.defined() ? teacher.weight.size(0)
                                                        : teacher.hidden.size(1);
  const HeadStatistics top =
      head_statistics(teacher, {.labels = {}, .scores = {}, .top_k = std::min(k, vocabulary), .divergences = {}});
  const Tensor mass = top.top_logps.to(at::kDouble).exp();
  const Tensor before = mass.cumsum(1) - mass;
  PdTarget target{.ids = top.top_ids, .logps = top.top_logps, .kept = (before < p) & (top.top_logps > -infinity)};
  target.ids = target.ids.masked_fill(~target.kept, 0);
  return target;
}

std::vector<TeacherRow> pd_rows(const PdTarget& target, const Tensor& label_logps) {
  const Tensor ids = target.ids.contiguous(), logps = target.logps.to(at::kDouble).contiguous(),
               kept = target.kept.contiguous();
  const Tensor labels = label_logps.defined() ? label_logps.to(at::kDouble).contiguous() : Tensor();
  std::vector<TeacherRow> rows(static_cast<size_t>(ids.size(0)));
  for (int64_t n = 0; n < ids.size(0); ++n) {
    TeacherRow& row = rows[static_cast<size_t>(n)];
    for (int64_t i = n * ids.size(1); i < (n + 1) * ids.size(1); ++i) {
      if (!kept.const_data_ptr<bool>()[i]) continue;
      row.ids.push_back(static_cast<int32_t>(ids.const_data_ptr<int64_t>()[i]));
      row.logps.push_back(logps.const_data_ptr<double>()[i]);
    }
    if (labels.defined()) row.label_logp = labels.const_data_ptr<double>()[n];
  }
  return rows;
}

Tensor pd_law(const PdTarget& target, const PdOptions& options) {
  return log_law(target, temperatures(target, options)).exp();
}

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
  const Tensor places = mask.reshape(-1).nonzero().squeeze(1);  // [C]
  const Tensor w =
      token_weights(mask, Reduction::token_mean, tokens_in_step, 0, weight).reshape(-1).index_select(0, places);
  const Tensor of_row = row_weights(target, o), law = pd_law(target, o);
  const Tensor label = labels.reshape(-1).index_select(0, places).unsqueeze(1);  // [C,1]
  const auto f = [&](const Tensor& z, const Tensor&, int64_t first) {
    const auto part = [&](const Tensor& values) { return values.narrow(0, first, z.size(0)); };
    const PdTarget here{part(target.ids), part(target.logps), part(target.kept)};
    const Tensor kd = part(of_row).to(z.scalar_type()) * row_loss(z, here.ids, part(law).to(z.scalar_type()), here, o);
    const Tensor lm = -at::log_softmax(z, 1).gather(1, part(label)).squeeze(1);
    return at::stack({kd, lm}, 1);
  };
  const Rows ours = rows_at(student, places);
  Rows none;  // what the target holds is all of the teacher that is needed
  none.hidden = at::zeros({places.size(0), 1}, ours.hidden.options().requires_grad(false));
  const RowBlockLoss walked = row_block_loss(ours, none, f, at::stack({alpha * w, (1 - alpha) * w}, 1));
  const Tensor values = walked.values.to(at::kDouble);
  const auto mean = [&](const Tensor& of_tokens) { return (w * of_tokens.masked_fill(w == 0, 0)).sum(); };
  return {.loss = walked.loss,
          .lm_loss = mean(values.select(1, 1)),
          .kd_loss = mean(values.select(1, 0)),
          .target_entropy = mean(-expected(law, law.log())),
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
