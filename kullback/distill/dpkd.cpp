#include "kullback/distill/dpkd.h"

#include <ATen/ATen.h>

#include "kullback/distill/counted.h"
#include "kullback/distill/plain_text.h"
#include "kullback/distill/reduction.h"
#include "kullback/distill/response_pairs.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/pairwise.h"

namespace kullback {

using at::Tensor;
using Form = DpkdOptions::Form;
using Preference = DpkdOptions::Preference;

namespace {

/// The loss of the difference h of log-ratios; `chosen`: the chosen output's own ln q - ln p. Elementwise.
Tensor preference_loss(const Tensor& h, const Tensor& chosen, const DpkdOptions& o) {
  switch (o.preference_loss) {
    case Preference::sigmoid: return logistic_loss(o.beta * h, o.label_smoothing);
    case Preference::ipo: return ipo_loss(h, o.beta);
    case Preference::dpop: return logistic_loss(o.beta * h) + o.dpop_lambda * at::relu(-chosen);
  }
  return h;
}

}  // namespace

DpkdLoss dpkd_sequence_loss(const PreferenceBatch& batch, const DpkdOptions& o) {
  const auto scored = [&](const Side& side) {
    const Score s = score(side);
    return o.length_normalize ? s.a_token() : s;
  };
  const Score t = scored(batch.chosen), s = scored(batch.rejected);
  const Tensor chosen = o.reference_free ? t.policy : t.log_ratio(),
               rejected = o.reference_free ? s.policy : s.log_ratio();
  const Tensor h = chosen - rejected, losses = preference_loss(h, t.log_ratio(), o);
  return {.loss = mean_over_pairs(losses, batch),
          .losses = losses.detach(),
          .chosen_rewards = o.beta * chosen.detach(),
          .rejected_rewards = o.beta * rejected.detach(),
          .accuracy = (h > 0).to(at::kDouble).mean(),
          .agreement = {}};
}

DpkdLoss dpkd_token_loss(const Rows& student, const Rows& teacher, const Tensor& mask, const DpkdOptions& o,
                         double tokens_in_step) {
  const CountedTokens c = counted_tokens(student, teacher, {}, mask, Reduction::token_mean, tokens_in_step);
  // [n,V] of each model -> [n,5]: loss, the two log-ratios, h, whether the likeliest tokens are the same
  const RowFunction of_rows = [&](const Tensor& ours, const Tensor& theirs, int64_t) {
    const Tensor q = at::log_softmax(ours, 1), p = at::log_softmax(theirs, 1);
    const Tensor y_t = theirs.argmax(1, true), y_s = ours.detach().argmax(1, true);  // of equals the lower index
    const Tensor q_t = q.gather(1, y_t), q_s = q.gather(1, y_s);
    const Tensor chosen = q_t - p.gather(1, y_t), rejected = q_s - p.gather(1, y_s);
    const Tensor same = y_t == y_s;
    const Tensor h = at::where(same, 0.0, o.reference_free ? q_t - q_s : chosen - rejected);
    return at::cat({preference_loss(h, chosen, o), chosen, rejected, h, same.to(h.scalar_type())}, 1);
  };
  const Tensor of_loss_alone = at::constant_pad_nd(c.weights.unsqueeze(1), {0, 4}, 0);
  const RowBlockLoss walked = row_block_loss(c.student, c.teacher, of_rows, of_loss_alone);
  const Tensor values = walked.values.reshape({-1, 5}).to(at::kDouble);
  const auto column = [&](int64_t i) { return values.select(1, i); };
  const auto back = [&](const Tensor& v) { return at_places(v, c.places, mask); };
  return {.loss = walked.loss,
          .losses = back(column(0)),
          .chosen_rewards = back(o.beta * column(1)),
          .rejected_rewards = back(o.beta * column(2)),
          .accuracy = (c.weights * (column(3) > 0)).sum(),
          .agreement = (c.weights * column(4)).sum()};
}

DpkdObjective dpkd_objective(const Tensor& preference, const Responses& response, const Responses& text,
                             const DpkdOptions& o) {
  DpkdObjective result{.loss = preference, .lm_loss = {}, .pretrain_loss = {}};
  if (response.defined()) {
    const PlainTextLoss lm =
        plain_text_loss(response.student, {}, response.labels, response.mask, 0, response.tokens_in_step);
    result.lm_loss = lm.ce_loss;
    result.loss = (1 - o.kd_ratio) * lm.loss + o.kd_ratio * preference;
  }
  if (text.defined()) {
    const PlainTextLoss plain =
        plain_text_loss(text.student, text.teacher, text.labels, text.mask, o.kd_ratio, text.tokens_in_step);
    result.pretrain_loss = plain.loss.detach();
    result.loss = result.loss + o.lm_coef * plain.loss;
  }
  return result;
}

namespace {

DistillationNeeds needs(const DpkdOptions& o) {
  const bool sequence = o.form == Form::sequence;
  DistillationNeeds needs;
  needs.teacher = !sequence;
  needs.sources = {.data = sequence ? 1.0 : 0.0, .teacher = sequence ? 0.0 : 1.0};
  needs.of_teacher = needs.of_student = sequence;
  needs.refresh = o.refresh;
  needs.text = o.lm_coef > 0;
  needs.text_teacher = o.kd_ratio > 0;
  return needs;
}

DistillationLoss loss(const DistillationBatch& b, const DpkdOptions& o) {
  const DpkdLoss preference = o.form == Form::sequence
                                  ? dpkd_sequence_loss(response_pairs(b.of_teacher, b.of_student), o)
                                  : dpkd_token_loss(b.student, b.teacher, b.mask, o, b.tokens_in_step);
  const DpkdObjective whole = dpkd_objective(preference.loss, b, b.text, o);
  DistillationLoss result{.value = whole.loss,
                          .parts = {{"kd_loss", preference.loss.detach()}, {"lm_loss", whole.lm_loss}}};
  if (whole.pretrain_loss.defined()) result.parts["pretrain_loss"] = whole.pretrain_loss;
  if (o.form == Form::sequence) {
    result.parts.insert({{"chosen_rewards", preference.chosen_rewards},
                         {"rejected_rewards", preference.rejected_rewards},
                         {"reward_margin", preference.chosen_rewards - preference.rejected_rewards},
                         {"accuracy", (preference.chosen_rewards > preference.rejected_rewards).to(at::kDouble)}});
  } else {
    result.parts.insert({{"accuracy", preference.accuracy}, {"agreement", preference.agreement}});
  }
  return result;
}

const Registered dpkd{
    distillation_method<DpkdOptions>("dpkd")
        .summary("DPO with the teacher as reference: the student learns to prefer the teacher's outputs to its own")
        .formula("loss = (1 - kd_ratio) CE + kd_ratio mean of -log sigmoid(beta h) + lm_coef (plain text)\n"
                 "h = ln q(y_t)/p(y_t) - ln q(y_s)/p(y_s); p: teacher, q: student\n"
                 "sequence: y_t, y_s are whole responses of teacher and student; token: their likeliest tokens at each "
                 "place")
        .when("When matching laws token by token has stopped to help and the student still answers unlike the teacher. "
              "token is the authors' code and samples nothing from the student; sequence is their paper.")
        .paper({"Direct Preference Knowledge Distillation for Large Language Models", "2406.19774", ""})
        .option("form", &DpkdOptions::form, {{"sequence", Form::sequence}, {"token", Form::token}},
                "what is compared: whole responses (the paper), or single tokens (its code)")
        .option("beta", &DpkdOptions::beta, positive, "strength of the pull to the teacher", "authors")
        .option("preference-loss", &DpkdOptions::preference_loss,
                {{"sigmoid", Preference::sigmoid}, {"ipo", Preference::ipo}, {"dpop", Preference::dpop}},
                "the loss of a comparison", "authors")
        .option("label-smoothing", &DpkdOptions::label_smoothing, from_to_below(0, 0.5),
                "sigmoid: assumed rate of pairs in which the student's output is the better", "authors")
        .option("dpop-lambda", &DpkdOptions::dpop_lambda, non_negative,
                "dpop: price of a teacher's output less likely than under the teacher", "authors")
        .option("reference-free", &DpkdOptions::reference_free, "leave the teacher's likelihoods out")
        .option("length-normalize", &DpkdOptions::length_normalize, "sequence: mean log-probabilities, not sums")
        .option(
            "kd-ratio", &DpkdOptions::kd_ratio, fraction,
            "weight of the preference loss; the rest is cross-entropy on the data's response (token: the teacher's)",
            "authors' GPT-2 script")
        .option("lm-coef", &DpkdOptions::lm_coef, non_negative, "weight of the loss on --text-data",
                "authors' GPT-2 script")
        .option("refresh", &DpkdOptions::refresh, at_least(1), "sequence: steps that a student's response is kept")
        .needs(needs)
        .loss(loss)};

}  // namespace
}  // namespace kullback
