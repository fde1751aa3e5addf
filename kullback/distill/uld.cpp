#include "kullback/distill/uld.h"

#include <ATen/ATen.h>

#include "kullback/distill/plain_text.h"
#include "kullback/distill/reduction.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;

Tensor sorted_distance(const Tensor& student, const Tensor& teacher, int64_t top_m) {
  // Softmax keeps the order, so sorted first or after is the same law; but only sorted first do two rows of the same logits at
  // other ids round alike, and have distance exactly 0.
  const auto law = [](const Tensor& logits) {
    return at::softmax(std::get<0>(at::sort(logits, /*stable=*/true, /*dim=*/1, /*descending=*/true)), 1);
  };
  Tensor p = law(student), q = law(teacher);  // [n,V], [n,V']
  const int64_t length = std::max(p.size(1), q.size(1));
  p = at::constant_pad_nd(p, {0, length - p.size(1)}), q = at::constant_pad_nd(q, {0, length - q.size(1)});
  if (top_m == 0 || top_m >= length) return (p - q).abs().sum(1);
  const auto rest = [&](const Tensor& sorted) { return sorted.slice(1, top_m).sum(1); };
  return (p - q).slice(1, 0, top_m).abs().sum(1) + (rest(p) - rest(q)).abs();
}

namespace {

/// The first `count[b]` counted places of each row of a mask, counted through it; without the last one where it is skipped.
Tensor usable(const Tensor& mask, bool skip_last) {
  const Tensor number = mask.to(at::kLong).cumsum(1), all = mask.sum(1, true);
  return skip_last ? mask & (number < all) : mask;
}

/// Places [M] of the first `count` [B] true entries of every row.
Tensor first_places(const Tensor& mask, const Tensor& count) {
  return (mask & (mask.to(at::kLong).cumsum(1) <= count.unsqueeze(1))).reshape(-1).nonzero().squeeze(1);
}

}  // namespace

UldLoss uld_loss(const Rows& student, const Rows& teacher, const Tensor& labels, const Tensor& mask,
                 const Tensor& teacher_mask, const UldOptions& o, double tokens_in_step, double sequences_in_step) {
  const Tensor ours = usable(mask, o.skip_student_last), theirs = usable(teacher_mask, o.skip_teacher_last);
  const Tensor pairs = at::minimum(ours.sum(1), theirs.sum(1));  // [B]
  const Tensor places = first_places(ours, pairs);
  Rows p = rows_at(student, places), q = rows_at(teacher, first_places(theirs, pairs));
  p.temperature *= o.student_temperature, q.temperature *= o.teacher_temperature;
  const double sequences =
      sequences_in_step > 0 ? sequences_in_step : static_cast<double>(std::max<int64_t>(1, mask.size(0)));
  const Tensor weights = (1 / (sequences * pairs.clamp_min(1).to(at::kDouble))).repeat_interleave(pairs);  // [M]
  const RowBlockLoss distance = row_block_loss(
      p, q, [&](const Tensor& s, const Tensor& t, int64_t) { return sorted_distance(s, t, o.top_m); }, weights);
  const PlainTextLoss ce = plain_text_loss(student, {}, labels, mask, 0, tokens_in_step);
  return {.loss = o.ce_weight * ce.loss + o.distil_weight * distance.loss,
          .ce = ce.ce_loss,
          .uld = distance.loss.detach(),
          .uld_per_token = at_places(distance.values, places, mask),
          .pairs = pairs};
}

namespace {

const Registered uld{
    distillation_method<UldOptions>("uld")
        .summary("Distil across tokenizers: the teacher's text, and the distance of sorted next-token laws")
        .formula("loss = ce_weight CE + distil_weight mean over sequences of the mean over rows of W\n"
                 "W = sum over ranks v of |p_(v) - q_(v)|, p_(v) the v-th largest probability of the student, q_(v) of "
                 "the teacher; the i-th row of one with the i-th row of the other")
        .when("When teacher and student have different tokenizers and vocabularies. Rows are paired by number, not by "
              "text: where the two cut the text into different numbers of tokens the pairing drifts.")
        .paper({"Towards Cross-Tokenizer Distillation: the Universal Logit Distillation Loss for LLMs", "2402.12030",
                "TMLR 2025"})
        .option("ce-weight", &UldOptions::ce_weight, non_negative, "weight of the cross-entropy on the teacher's text",
                "authors' code")
        .option("distil-weight", &UldOptions::distil_weight, non_negative, "weight of the distance of sorted laws",
                "authors' code")
        .option("student-temperature", &UldOptions::student_temperature, positive, "divides the student's logits",
                "authors' code")
        .option("teacher-temperature", &UldOptions::teacher_temperature, positive, "divides the teacher's logits",
                "authors' code")
        .option("skip-student-last", &UldOptions::skip_student_last, "leave the student's last row out of the distance",
                "authors' code")
        .option("skip-teacher-last", &UldOptions::skip_teacher_last, "the same for the teacher", "authors' code")
        .option("top-m", &UldOptions::top_m, non_negative,
                "compare only so many of the likeliest tokens, and what is left of the mass; 0: all")
        .needs([](const UldOptions&) {
          DistillationNeeds needs;
          needs.sources = {.data = 0, .teacher = 1};
          needs.other_tokenizer = true;
          return needs;
        })
        .loss([](const DistillationBatch& b, const UldOptions& o) {
          const Tensor teacher_mask = b.teacher_mask.defined() ? b.teacher_mask : b.mask;
          const UldLoss l =
              uld_loss(b.student, b.teacher, b.labels, b.mask, teacher_mask, o, b.tokens_in_step, b.sequences_in_step);
          return DistillationLoss{.value = l.loss, .parts = {{"ce_loss", l.ce}, {"uld_loss", l.uld}}};
        })};

}  // namespace
}  // namespace kullback
