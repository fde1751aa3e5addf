#include "kullback/distill/distillm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/distill/plain_text.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/rollouts.h"

namespace kullback {

using at::Tensor;
using Skew = DistillmOptions::Skew;
using Replay = DistillmOptions::Replay;
using Action = DistillmAction;

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

namespace {

/// Counted rows of both models as the divergence sees them.
std::pair<Rows, Rows> counted(const Responses& b, const DistillmOptions& o) {
  const Tensor places = b.mask.reshape(-1).nonzero().squeeze(1);
  Rows student = rows_at(b.student, places), teacher = rows_at(b.teacher, places);
  student.temperature *= o.temperature, teacher.temperature *= o.temperature;
  return {student, teacher};
}

}  // namespace

Tensor cross_entropy_form(const Responses& b, const DistillmOptions& o) {
  KdOptions alone = distillm_divergence(o);
  alone.kd_ratio = 1;
  const Tensor kd = kd_loss(b.student, b.teacher, {}, b.mask, alone).kd_loss;
  if (o.divergence == Skew::skew_reverse_kl) return kd;
  HeadRequest request;
  request.entropy = true;
  const Tensor entropy = head_statistics(counted(b, o).second, request).entropy;
  return kd + (entropy.numel() > 0 ? entropy.mean() : at::zeros_like(kd));
}

Tensor largest_ratio(const Responses& b, const DistillmOptions& o) {
  const auto [student, teacher] = counted(b, o);
  const Tensor ratios = row_block_values(student, teacher, [&](const Tensor& s, const Tensor& t, int64_t) {
    const Tensor q = at::log_softmax(s, 1), p = at::log_softmax(t, 1);
    const Tensor& first = o.divergence == Skew::skew_kl ? p : q;
    const Tensor& second = o.divergence == Skew::skew_kl ? q : p;
    const Tensor m = at::logaddexp(first + std::log(o.skew_alpha), second + std::log1p(-o.skew_alpha));
    return at::where(at::isneginf(first), 0.0, (first - m).exp()).amax(1);
  });
  return ratios.numel() > 0 ? ratios.max() : at::zeros({}, ratios.options());
}

void AdaptiveThreshold::observe(double loss, const DistillmOptions& o) {
  if (loss < previous + o.loss_eps) return;
  threshold = std::min(threshold + o.threshold_step, 1.0);
  previous = loss;
}

double fresh_probability(double threshold, int64_t step, int64_t steps, const DistillmOptions& o) {
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  switch (o.replay_ratio) {
    case Replay::decreasing: return threshold * (1 - done);
    case Replay::constant: return 0.5 * threshold;
    case Replay::increasing: return threshold * done;
  }
  return 0;
}

Action distillm_action(double r, double threshold, int64_t step, int64_t steps, int64_t buffered,
                       const DistillmOptions& o) {
  if (r < fresh_probability(threshold, step, steps, o) || (r < threshold && buffered < o.capacity)) {
    return Action::fresh;
  }
  return r < threshold ? Action::replay : Action::data;
}

namespace {

AdaptiveThreshold threshold_of(const DistillationState& state, const DistillmOptions& o) {
  return {.threshold = state.values.value("threshold", o.init_threshold),
          .previous = state.values.value("previous", INFINITY)};
}

/// `count` of the buffer, drawn without replacement.
std::vector<Response> replayed(const std::vector<Response>& buffer, size_t count, RandomStream& random) {
  std::vector<Response> drawn = buffer;
  random.shuffle(drawn);
  drawn.resize(std::min(count, drawn.size()));
  return drawn;
}

std::vector<Response> responses(DistillationStep& step, const DistillmOptions& o) {
  RandomStream random(step.seed, "distillm", static_cast<uint64_t>(step.step));
  const auto count = static_cast<int64_t>(step.examples.size());
  if (o.capacity < count) fail("option --capacity: {} is below the {} examples of a step", o.capacity, count);
  std::vector<Response> buffer = stored_responses(step.state, "buffer");
  const Action action = distillm_action(random.uniform(), threshold_of(step.state, o).threshold, step.step + 1,
                                        step.steps, std::ssize(buffer), o);
  step.state.values["action"] = static_cast<int>(action);
  if (action == Action::data) return step.run.data(step.examples);
  if (action == Action::replay) return replayed(buffer, step.examples.size(), random);
  const std::vector<Response> fresh =
      step.run.draw(ResponseSource::student, step.examples, fmt::format("distillm/{}", step.step));
  buffer.insert(buffer.end(), fresh.begin(), fresh.end());
  if (std::ssize(buffer) > o.capacity) buffer.erase(buffer.begin(), buffer.end() - o.capacity);
  store_responses(step.state, "buffer", buffer);
  return fresh;
}

DistillationNeeds needs(const DistillmOptions& o) {
  DistillationNeeds needs;
  needs.sources = {.data = 0.5, .student = 0.5};  // which, `responses` says
  needs.of_student_by.sampling.temperature = o.gen_temperature;
  needs.of_student_by.sampling.top_p = o.gen_top_p;
  needs.of_student_by.sampling.top_k = o.gen_top_k;
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
        .responses(responses)
        .loss([](const DistillationBatch& b, const DistillmOptions& o) {
          const DistillmLoss l = distillm_loss(b, b.text, o);
          DistillationLoss loss{.value = l.loss, .parts = {{"kd_loss", l.kd_loss}, {"ce_loss", l.ce_loss}}};
          if (l.pretrain_loss.defined()) loss.parts["pretrain_loss"] = l.pretrain_loss;
          return loss;
        })
        .after_step([](DistillationStep& step, Figures& figures, const DistillmOptions& o) {
          const int action = step.state.values.value("action", 0);
          figures["threshold"] = {threshold_of(step.state, o).threshold, 1};
          figures["fresh"] = {action == static_cast<int>(Action::fresh) ? 1.0 : 0.0, 1};
          figures["replayed"] = {action == static_cast<int>(Action::replay) ? 1.0 : 0.0, 1};
        })
        .after_evaluation([](DistillationStep& step, double loss, const DistillmOptions& o) {
          AdaptiveThreshold now = threshold_of(step.state, o);
          if (std::isinf(now.previous)) {
            now.previous = loss;
          } else {
            now.observe(loss, o);
          }
          step.state.values["threshold"] = now.threshold;
          step.state.values["previous"] = now.previous;
        })};

}  // namespace
}  // namespace kullback
