#include "kullback/distill/kd.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/counted.h"
#include "kullback/train/distillation.h"

namespace kullback {
namespace {

using at::Tensor;
using Objective = KdOptions::Objective;
using Source = KdOptions::Source;

const Choices<Objective> objectives{{"forward_kl", Objective::forward_kl},
                                    {"reverse_kl", Objective::reverse_kl},
                                    {"symmetric_kl", Objective::symmetric_kl},
                                    {"jeffreys", Objective::jeffreys},
                                    {"js", Objective::js},
                                    {"skew_kl", Objective::skew_kl},
                                    {"skew_reverse_kl", Objective::skew_reverse_kl},
                                    {"total_variation", Objective::total_variation},
                                    {"squared_hellinger", Objective::squared_hellinger},
                                    {"pearson_chi2", Objective::pearson_chi2},
                                    {"neyman_chi2", Objective::neyman_chi2},
                                    {"alpha", Objective::alpha},
                                    {"triangular", Objective::triangular}};

}  // namespace

Divergence kd_divergence(const KdOptions& o) {
  const auto with = [](const char* name, double parameter) {
    return divergence(fmt::format("{}:{}", name, parameter));
  };
  switch (o.divergence) {
    case Objective::forward_kl: return divergence("kl");
    case Objective::reverse_kl: return divergence("reverse-kl");
    case Objective::symmetric_kl: return with("symmetric-kl", o.reverse_weight);
    case Objective::jeffreys: return divergence("jeffreys");
    case Objective::js: return with("js", o.js_beta);
    case Objective::skew_kl: return with("skew-kl", o.skew_alpha);
    case Objective::skew_reverse_kl: return with("skew-reverse-kl", o.skew_alpha);
    case Objective::total_variation: return divergence("tv");
    case Objective::squared_hellinger: return divergence("hellinger");
    case Objective::pearson_chi2: return divergence("chi2");
    case Objective::neyman_chi2: return divergence("neyman-chi2");
    case Objective::alpha: return with("alpha", o.alpha);
    case Objective::triangular: return divergence("le-cam");
  }
  return divergence("kl");
}

KdLoss kd_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask, const KdOptions& o,
               double tokens_in_step, double sequences_in_step, const Tensor& weight) {
  if (o.kd_ratio < 1 && !labels.defined())
    fail("option --kd-ratio: {} asks for cross-entropy, and there are no labels", o.kd_ratio);
  const CountedTokens c =
      counted_tokens(student, teacher, labels, mask, o.reduction, tokens_in_step, sequences_in_step, weight);
  const double scale = o.t_squared ? o.temperature * o.temperature : 1;
  const Divergence d = kd_divergence(o);

  // The weights of all tokens are known, so each loss's gradient is made in the walk that computes it.
  const Tensor label_weights = (1 - o.kd_ratio) * c.weights;
  HeadRequest request;
  HeadStatistics request_weights;
  request.divergences = {d.from_reference()};
  request_weights.divergences = {o.kd_ratio * scale * c.weights};
  const bool one_walk = labels.defined() && o.temperature == 1;
  if (one_walk) {
    request.labels = c.labels;
    request.logps = true;
    request_weights.logps = -label_weights;
  }
  const Rows warm = at_temperature(c.student, o.temperature), warm_teacher = at_temperature(c.teacher, o.temperature);
  const HeadLoss divergence_loss = head_loss(warm, warm_teacher, request, request_weights);

  KdLoss result;
  result.loss = divergence_loss.loss;
  Tensor logps = divergence_loss.statistics.logps;
  if (labels.defined() && !one_walk) {
    const HeadLoss label_loss = cross_entropy(c.student, c.labels, label_weights);
    result.loss = result.loss + label_loss.loss;
    logps = label_loss.statistics.logps;
  }
  if (!o.detach_teacher) {  // the same divergence, seen from the teacher's side
    HeadRequest mirrored;
    mirrored.divergences = {d.from_policy()};
    HeadStatistics mirrored_weights;
    mirrored_weights.divergences = request_weights.divergences;
    const Tensor of_teacher = head_loss(warm_teacher, warm, mirrored, mirrored_weights).loss;
    result.loss = result.loss + (of_teacher - of_teacher.detach());
  }
  const Tensor values = scale * divergence_loss.statistics.divergences[0].to(at::kDouble);  // [C]
  result.per_token = at_places(values, c.places, mask);
  result.kd_loss = (c.weights * values).sum();
  if (labels.defined()) result.ce_loss = -(c.weights * logps).sum();
  return result;
}

namespace {

DistillationNeeds needs(const KdOptions& o) {
  DistillationNeeds needs;
  needs.teacher = o.kd_ratio > 0;
  needs.sources = {.data = o.source == Source::data ? 1.0 : 0.0,
                   .teacher = o.source == Source::teacher ? 1.0 : 0.0,
                   .student = o.source == Source::student ? 1.0 : 0.0};
  needs.of_teacher_by = {.beams = o.beams, .interpolate = o.interpolate};
  needs.weights = true;
  return needs;
}

const Registered kd{
    distillation_method<KdOptions>("kd")
        .summary("Knowledge distillation: draw the student's next-token laws to the teacher's in a chosen divergence")
        .formula("loss = (1 - kd_ratio) CE + kd_ratio mean over tokens of D(p || q)\n"
                 "p = softmax(teacher logits / temperature), q = softmax(student logits / temperature)\n"
                 "D_f(p || q) = sum_y q f(p / q); forward_kl: f(u) = u ln u, reverse_kl: -ln u, and so on")
        .when(
            "The base of distillation, when both models share a tokenizer. forward_kl covers all that the teacher "
            "does, reverse_kl keeps to its main modes, js and the skews lie between and stay finite. On the teacher's "
            "own responses (`source teacher`) it is sequence-level distillation.")
        .paper({"Distilling the Knowledge in a Neural Network", "1503.02531", "NIPS workshop 2014"})
        .paper({"Sequence-Level Knowledge Distillation", "1606.07947", "EMNLP 2016"})
        .option("divergence", &KdOptions::divergence, objectives,
                "the divergence from the teacher's law to the student's", "LMOps, distillm: forward_kl")
        .option("temperature", &KdOptions::temperature, positive, "divides the logits of both models",
                "LLM code: 1; Hinton: 1 to 20")
        .option("t-squared", &KdOptions::t_squared, "multiply the divergence by the temperature squared", "Hinton")
        .option("kd-ratio", &KdOptions::kd_ratio, fraction,
                "weight of the divergence; the rest is cross-entropy on the labels", "distillm; LMOps 0.5")
        .option("reduction", &KdOptions::reduction, reductions(),
                "mean over all counted tokens, mean over the sequences' means, or sum")
        .option("detach-teacher", &KdOptions::detach_teacher,
                "give the teacher no gradient; `kullback distill` never trains it")
        .option("reverse-weight", &KdOptions::reverse_weight, fraction,
                "symmetric_kl: weight of KL(student || teacher)")
        .option("js-beta", &KdOptions::js_beta,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true, .maximum_excluded = true},
                "js: weight of the teacher in the mixture")
        .option("skew-alpha", &KdOptions::skew_alpha, fraction,
                "skew_kl, skew_reverse_kl: how much of the first law is in the second", "distillm")
        .option("alpha", &KdOptions::alpha, any_number,
                "alpha: forward KL at 1, reverse KL at 0, chi-squared at 2 and -1")
        .option("source", &KdOptions::source,
                {{"data", Source::data}, {"teacher", Source::teacher}, {"student", Source::student}},
                "whose responses are trained on")
        .option("beams", &KdOptions::beams, at_least(1),
                "teacher responses by beam search of this width; 1 samples them", "Kim and Rush")
        .option("interpolate", &KdOptions::interpolate, "of the beams take the one most like the data's response")
        .needs(needs)
        .validate([](const KdOptions& o) {
          if (!o.detach_teacher)
            fail("option --detach-teacher: a run does not train its teacher; only the library can");
        })
        .loss([](const DistillationBatch& b, const KdOptions& o) {
          const Rows& teacher = b.teacher.hidden.defined() ? b.teacher : b.student;  // kd_ratio 0 asks for none
          KdLoss l = kd_loss(b.student, teacher, b.labels, b.mask, o, b.tokens_in_step, b.sequences_in_step, b.weight);
          return DistillationLoss{.value = l.loss, .parts = {{"kd_loss", l.kd_loss}, {"ce_loss", l.ce_loss}}};
        })};

}  // namespace
}  // namespace kullback
