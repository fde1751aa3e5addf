#include "kullback/distill/plad.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/distill/response_pairs.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/similarity.h"

namespace kullback {

using at::Tensor;
using LossType = PladOptions::LossType;

PladLoss plad_loss(const PreferenceBatch& batch, const PladOptions& o, const Tensor& chosen_scores,
                   const Tensor& rejected_scores) {
  const auto likelihood = [&](const Side& side) {
    const Score s = score(side);
    return o.length_normalise ? s.a_token().policy : s.policy;
  };
  const Tensor chosen = likelihood(batch.chosen), gap = chosen - likelihood(batch.rejected);  // [B]
  const Tensor margin = o.loss_type == LossType::rank
                            ? at::full_like(gap.detach(), o.beta)
                            : o.beta * (chosen_scores - rejected_scores).to(gap.scalar_type());
  const Tensor calibration = mean_over_pairs(hinge_loss(gap, margin), batch);
  const Tensor regulariser = mean_over_pairs(-chosen, batch);
  return {.loss = o.reg_weight > 0 ? calibration + o.reg_weight * regulariser : calibration,
          .calibration_loss = calibration.detach(),
          .regulariser = regulariser.detach(),
          .margin = margin,
          .gap = gap.detach(),
          .active_fraction = (gap.detach() < margin).to(at::kDouble).mean(),
          .ranking_accuracy = (gap.detach() > 0).to(at::kDouble).mean()};
}

std::string plad_verdict(const std::vector<int32_t>& chosen, const std::vector<int32_t>& rejected, double chosen_score,
                         double rejected_score, const PladOptions& o) {
  if (chosen.empty() || rejected.empty()) return "empty";
  if (chosen == rejected) return "identical";
  return o.filter_by_score && chosen_score <= rejected_score ? "score" : "kept";
}

namespace {

DistillationNeeds needs(const PladOptions& o) {
  DistillationNeeds needs;
  needs.teacher = needs.side_teacher = false;
  needs.sources = {.data = 0, .teacher = 1};
  needs.of_student = true;
  needs.refresh = 0;  // the student's responses are those from before the run
  needs.of_teacher_by.sampling.temperature = needs.of_student_by.sampling.temperature = o.temperature;
  needs.of_teacher_by.sampling.top_p = needs.of_student_by.sampling.top_p = o.top_p;
  needs.similarity = o.loss_type == LossType::margin;
  return needs;
}

/// The teacher's responses to the step's prompts. Each pair weighs one, or 0 where it is left out, against the number that are
/// kept in the step.
std::vector<Response> responses(DistillationStep& step, const PladOptions& o) {
  std::vector<Response> chosen = step.run.stored(ResponseSource::teacher, step.examples);
  const std::vector<Response> rejected = step.run.stored(ResponseSource::student, step.examples);
  const std::vector<Response> data = o.filter_by_score ? step.run.data(step.examples) : std::vector<Response>{};
  std::vector<bool> keep;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto likeness = [&](const Response& r) { return data.empty() ? 0 : rouge_l(data[i].tokens, r.tokens); };
    keep.push_back(plad_verdict(chosen[i].tokens, rejected[i].tokens, likeness(chosen[i]), likeness(rejected[i]), o) ==
                   "kept");
  }
  const auto kept = static_cast<double>(std::ranges::count(keep, true));
  for (size_t i = 0; i < chosen.size(); ++i)
    chosen[i].numbers["pair_weight"].assign(chosen[i].tokens.size(), keep[i] ? 1 / kept : 0);
  step.state.values["kept"] = kept / static_cast<double>(chosen.size());
  return chosen;
}

DistillationLoss loss(const DistillationBatch& b, const PladOptions& o) {
  PreferenceBatch pairs = response_pairs(b, b.of_student);
  pairs.weight = b.numbers.at("pair_weight").amax(1);
  pairs.pairs_in_step = 1;
  const PladLoss l = plad_loss(pairs, o, b.similarity, b.of_student.similarity);
  const auto of_kept = [&](const Tensor& values) { return values.to(at::kDouble).masked_select(pairs.weight > 0); };
  return {.value = l.loss,
          .parts = {{"calibration_loss", l.calibration_loss},
                    {"regulariser", l.regulariser},
                    {"margin", of_kept(l.margin)},
                    {"gap", of_kept(l.gap)},
                    {"active", of_kept(l.gap < l.margin)},
                    {"ranking_accuracy", of_kept(l.gap > 0)}}};
}

const Registered plad{
    distillation_method<PladOptions>("plad")
        .summary(
            "The teacher's response is preferred to the student's own; a hinge makes likelihood follow, without logits")
        .formula("loss = mean over pairs of max(0, margin - (ln q(y+) - ln q(y-))) + reg_weight mean of -ln q(y+)\n"
                 "y+: the teacher's response, y-: the untrained student's; rank: margin = beta; margin: beta times the "
                 "difference of their scores (ROUGE-L to the data's response)")
        .when("When only the teacher's text is to be had. Long responses: set length-normalise, or length decides. "
              "Both likelihoods may sink while their gap holds; reg-weight above 0 prevents it.")
        .paper({"PLaD: Preference-based Large Language Model Distillation with Pseudo-Preference Pairs", "2406.02886",
                "ACL Findings 2024"})
        .option("loss-type", &PladOptions::loss_type, {{"rank", LossType::rank}, {"margin", LossType::margin}},
                "a fixed gap, or one in proportion to the difference of scores", "paper")
        .option("beta", &PladOptions::beta, positive, "the gap in nats, or for a unit of score")
        .option("length-normalise", &PladOptions::length_normalise, "compare mean log-probabilities, not sums")
        .option("reg-weight", &PladOptions::reg_weight, non_negative,
                "weight of the negative log-likelihood of the teacher's response")
        .option("filter-by-score", &PladOptions::filter_by_score, "leave out pairs whose scores say otherwise")
        .option("temperature", &PladOptions::temperature, positive, "of both models' responses")
        .option("top-p", &PladOptions::top_p, NumberRange{.minimum = 0, .maximum = 1, .minimum_excluded = true},
                "of both models' responses")
        .needs(needs)
        .responses(responses)
        .loss(loss)
        .after_step([](DistillationStep& step, Figures& figures, const PladOptions&) {
          figures["kept_pairs"] = {step.state.values.value("kept", 1.0), 1};
        })};

}  // namespace
}  // namespace kullback
