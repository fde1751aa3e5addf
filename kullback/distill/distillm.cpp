#include "kullback/distill/distillm.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/distillm_schedule.h"
#include "kullback/distill/plain_text.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;
using Skew = DistillmOptions::Skew;
using Replay = DistillmOptions::Replay;

KdOptions distillm_divergence(const DistillmOptions& o) {
  using Objective = KdOptions::Objective;
  return {.divergence = o.divergence == Skew::skew_kl ? Objective::skew_kl : Objective::skew_reverse_kl,
          .temperature = o.temperature,
          .kd_ratio = o.kd_ratio,
          .reduction = o.reduction,
          .skew_alpha = o.skew_alpha};
}

DistillmLoss distillm_loss(const Responses& b, const Responses& text, const DistillmOptions& o) {
  const KdLoss kd =
      kd_loss(b.student, b.teacher, b.labels, b.mask, distillm_divergence(o), b.tokens_in_step, b.sequences_in_step);
  DistillmLoss result{
      .loss = kd.loss, .kd_loss = kd.kd_loss, .ce_loss = kd.ce_loss, .pretrain_loss = {}, .per_token = kd.per_token};
  if (text.defined()) {
    const PlainTextLoss plain = plain_text_loss(text.student, {}, text.labels, text.mask, 0, text.tokens_in_step);
    result.pretrain_loss = plain.ce_loss;
    result.loss = result.loss + o.lm_coef * plain.loss;
  }
  return result;
}

Tensor cross_entropy_form(const Responses& b, const DistillmOptions& o) {
  KdOptions alone = distillm_divergence(o);
  alone.kd_ratio = 1;
  const Tensor kd = kd_loss(b.student, b.teacher, {}, b.mask, alone).kd_loss;
  if (o.divergence == Skew::skew_reverse_kl) return kd;
  HeadRequest request;
  request.entropy = true;
  const CountedTokens c = counted_tokens(b.student, b.teacher, {}, b.mask);
  const Tensor entropy = head_statistics(at_temperature(c.teacher, o.temperature), request).entropy;
  return kd + (entropy.numel() > 0 ? entropy.mean() : at::zeros_like(kd));
}

Tensor largest_ratio(const Responses& b, const DistillmOptions& o) {
  const CountedTokens c = counted_tokens(b.student, b.teacher, {}, b.mask);
  const Rows student = at_temperature(c.student, o.temperature), teacher = at_temperature(c.teacher, o.temperature);
  const Tensor ratios = row_block_values(student, teacher, [&](const Tensor& s, const Tensor& t, int64_t) {
    const Tensor q = at::log_softmax(s, 1), p = at::log_softmax(t, 1);
    const Tensor& first = o.divergence == Skew::skew_kl ? p : q;
    const Tensor& second = o.divergence == Skew::skew_kl ? q : p;
    const Tensor m = at::logaddexp(first + std::log(o.skew_alpha), second + std::log1p(-o.skew_alpha));
    return at::where(at::isneginf(first), 0.0, (first - m).exp()).amax(1);
  });
  return ratios.numel() > 0 ? ratios.max() : at::zeros({}, ratios.options());
}

namespace {

DistillationNeeds needs(const DistillmOptions& o) {
  DistillationNeeds needs;
  needs.sources = {.data = 0.5, .student = 0.5};  // which, `responses` says
  needs.of_student_by.sampling = {.temperature = o.gen_temperature, .top_k = o.gen_top_k, .top_p = o.gen_top_p};
  needs.text = o.lm_coef > 0;
  return needs;
}

const Registered distillm{
    distillation_method<DistillmOptions>("distillm")
        .summary("Skew KL, whose gradient is bounded, with student responses drawn when needed and used again")
        .formula("loss = (1 - kd_ratio) CE + kd_ratio mean over tokens of D + lm_coef CE(plain text)\n"
                 "skew_kl: D = KL(p || a p + (1 - a) q); skew_reverse_kl: D = KL(q || a q + (1 - a) p)\n"
                 "a step: r uniform; r < lambda: fresh student responses; else r < phi: replayed ones; else data\n"
                 "phi rises by threshold_step when the held-out loss rises by loss_eps; lambda = phi (1 - t / T)")
        .when("When gkd's generation at every step is too slow, or plain KL too rough where the student has almost no "
              "mass. Give --eval-every: phi moves at evaluations alone, and with init-threshold 0 nothing is sampled "
              "before the held-out loss has risen.")
        .paper({"DistiLLM: Towards Streamlined Distillation for Large Language Models", "2402.03898", "ICML 2024"})
        .option("divergence", &DistillmOptions::divergence,
                {{"skew_kl", Skew::skew_kl}, {"skew_reverse_kl", Skew::skew_reverse_kl}},
                "of teacher and mixture, or of student and mixture", "authors' GPT-2 script")
        .option("skew-alpha", &DistillmOptions::skew_alpha, fraction,
                "share of the first law in the mixture; 0: plain KL, 1: nothing", "authors")
        .option("temperature", &DistillmOptions::temperature, positive, "divides the logits of both models")
        .option("kd-ratio", &DistillmOptions::kd_ratio, fraction,
                "weight of the divergence; the rest is cross-entropy on the labels", "authors' scripts")
        .option("lm-coef", &DistillmOptions::lm_coef, non_negative, "weight of the cross-entropy on --text-data",
                "authors")
        .option("reduction", &DistillmOptions::reduction, reductions(),
                "mean over all counted tokens, mean over the sequences' means, or sum")
        .option("init-threshold", &DistillmOptions::init_threshold, fraction,
                "probability of not training on data, at first", "authors; OpenLLaMA script 0.2")
        .option("loss-eps", &DistillmOptions::loss_eps, non_negative,
                "rise of the held-out loss that raises that probability", "authors; OpenLLaMA script 0.2")
        .option("threshold-step", &DistillmOptions::threshold_step,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true}, "by how much", "authors")
        .option("capacity", &DistillmOptions::capacity, at_least(1),
                "responses that the replay buffer holds; at least a step's examples", "authors")
        .option(
            "replay-ratio", &DistillmOptions::replay_ratio,
            {{"decreasing", Replay::decreasing}, {"constant", Replay::constant}, {"increasing", Replay::increasing}},
            "how the share of fresh responses goes along the run", "authors")
        .option("gen-temperature", &DistillmOptions::gen_temperature, positive,
                "temperature of the student's responses")
        .option("gen-top-p", &DistillmOptions::gen_top_p,
                NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true}, "top-p of the student's responses")
        .option("gen-top-k", &DistillmOptions::gen_top_k, non_negative, "top-k of the student's responses; 0: off")
        .needs(needs)
        .responses(distillm_responses)
        .loss([](const DistillationBatch& b, const DistillmOptions& o) {
          const DistillmLoss l = distillm_loss(b, b.text, o);
          DistillationLoss loss{.value = l.loss, .parts = {{"kd_loss", l.kd_loss}, {"ce_loss", l.ce_loss}}};
          if (l.pretrain_loss.defined()) loss.parts["pretrain_loss"] = l.pretrain_loss;
          return loss;
        })
        .after_step(distillm_figures)
        .after_evaluation(distillm_observe)};

}  // namespace
}  // namespace kullback
