#include "kullback/distill/skd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "kullback/base/error.h"

namespace kullback {

using Accept = SkdOptions::Accept;
using Objective = SkdOptions::Objective;

int64_t teacher_rank(std::span<const double> logits, int32_t token) {
  const auto y = static_cast<size_t>(token);
  int64_t rank = 0;
  for (size_t v = 0; v < logits.size(); ++v) rank += logits[v] > logits[y] || (logits[v] == logits[y] && v < y);
  return rank;
}

bool skd_accepts(std::span<const double> logits, int32_t proposed, int64_t top_k, const SkdOptions& o) {
  if (o.accept == Accept::top_k) return teacher_rank(logits, proposed) < top_k;
  std::vector<double> nucleus(logits.begin(), logits.end());
  keep_top_p(nucleus, o.accept_top_p);
  return nucleus[static_cast<size_t>(proposed)] > -std::numeric_limits<double>::infinity();
}

int64_t skd_top_k(int64_t pass, const SkdOptions& o) {
  if (!o.k_decay || pass == 0) return o.top_k;
  const int64_t k = std::max<int64_t>(o.top_k, 1), every = std::max<int64_t>(o.expected_length / k, 1);
  const int64_t less = std::max<int64_t>((k + o.expected_length - 1) / o.expected_length, 1);
  return std::max<int64_t>(o.top_k - less * ((pass + every - 1) / every), 1);
}

int32_t skd_token(std::span<const double> logits, int32_t proposed, int64_t pass, double uniform, const SkdOptions& o) {
  if (skd_accepts(logits, proposed, skd_top_k(pass, o), o)) return proposed;
  std::vector<double> row(logits.begin(), logits.end());
  filter(row, {}, {.temperature = o.teacher_temperature, .top_p = o.teacher_top_p});
  return draw(softmax(row), uniform);
}

Together skd_together(const SkdOptions& o) {
  Together together;
  together.student = {.temperature = o.student_temperature, .top_p = o.student_top_p};
  together.block = o.block;
  together.settle = [o](const TogetherPlace& at) -> SettledToken {
    const std::vector<double> teacher(at.teacher.begin(), at.teacher.end());
    return {skd_token(teacher, at.proposed, at.pass, at.uniform, o), std::numeric_limits<double>::quiet_NaN()};
  };
  return together;
}

KdOptions skd_divergence(const SkdOptions& o) {
  using Kd = KdOptions::Objective;
  return {.divergence = o.divergence == Objective::forward_kl   ? Kd::forward_kl
                        : o.divergence == Objective::reverse_kl ? Kd::reverse_kl
                                                                : Kd::js,
          .reduction = Reduction::sequence_mean};
}

namespace {

const NumberRange mass{.minimum = 0, .maximum = 1, .minimum_excluded = true};

DistillationNeeds needs(const SkdOptions& o) {
  DistillationNeeds needs;
  needs.sources = {.data = 1 - o.mixed_ratio, .both = o.mixed_ratio};
  needs.together = skd_together(o);
  needs.live_teacher = o.mixed_ratio > 0;
  return needs;
}

const Registered skd{
    distillation_method<SkdOptions>("skd")
        .summary(
            "The student proposes each token, the teacher replaces poor ones, and the student learns on the result")
        .formula("y ~ q; it stands if fewer than K tokens are likelier under the teacher, else y ~ p\n"
                 "loss = mean over responses of the mean over their tokens of D(p, q)\n"
                 "K the whole vocabulary: the student's own responses; K = 0: the teacher's")
        .when("Between gkd and sequence-level distillation, when the student's own samples are too poor to learn from "
              "and the teacher's too far from what it says. Larger K trusts the student more.")
        .paper({"Speculative Knowledge Distillation: Bridging the Teacher-Student Gap Through Interleaved Sampling",
                "2410.11325", "ICLR 2025"})
        .option("top-k", &SkdOptions::top_k, non_negative,
                "a proposal stands if the teacher ranks it among so many; 0: none does", "paper and code")
        .option("accept", &SkdOptions::accept, {{"top_k", Accept::top_k}, {"top_p", Accept::top_p}},
                "what stands: the teacher's K likeliest, or its nucleus", "code")
        .option("accept-top-p", &SkdOptions::accept_top_p, mass, "top_p: mass of that nucleus")
        .option("block", &SkdOptions::block, at_least(1), "proposals that the teacher looks at in one pass", "code")
        .option("student-temperature", &SkdOptions::student_temperature, non_negative, "of the proposals; 0: arg-max",
                "code's configuration")
        .option("student-top-p", &SkdOptions::student_top_p, mass, "of the proposals", "code's configuration")
        .option("teacher-temperature", &SkdOptions::teacher_temperature, non_negative,
                "of the replacements; 0: arg-max", "code's configuration")
        .option("teacher-top-p", &SkdOptions::teacher_top_p, mass, "of the replacements", "code's configuration")
        .option("divergence", &SkdOptions::divergence,
                {{"forward_kl", Objective::forward_kl}, {"reverse_kl", Objective::reverse_kl}, {"js", Objective::js}},
                "from the teacher's law to the student's", "paper")
        .option("mixed-ratio", &SkdOptions::mixed_ratio, fraction,
                "probability that a step trains on such responses; else on the data's", "code: 0.5 when mixed")
        .option("k-decay", &SkdOptions::k_decay, "let K fall to 1 over a response", "optional in the code")
        .option("expected-length", &SkdOptions::expected_length, at_least(1), "k-decay: tokens over which it falls")
        .needs(needs)
        .loss([](const DistillationBatch& b, const SkdOptions& o) {
          const KdLoss l =
              kd_loss(b.student, b.teacher, {}, b.mask, skd_divergence(o), b.tokens_in_step, b.sequences_in_step);
          return DistillationLoss{.value = l.loss, .parts = {{"kd_loss", l.kd_loss}}};
        })};

}  // namespace
}  // namespace kullback
