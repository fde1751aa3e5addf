// What speculative distillation claims, where everything can be enumerated: responses drawn by both models together are better
// to learn from than either's own.
#include <ATen/ATen.h>

#include "kullback/distill/skd.h"
#include "kullback/world/claim.h"
#include "kullback/world/first_order.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// The law of the token that stands, at temperature 1: q(y) [y among the K] + (1 - q(the K)) p(y). [P,V] log-probabilities
Tensor interleaved_rows(const FirstOrderWorld& world, const Tensor& student, const Tensor& accepted) {
  const Tensor kept = at::softmax(student.detach(), 1) * accepted;
  return (kept + (1 - kept.sum(1, true)) * world.teacher.exp()).log();
}

/// [P,V]: 1 where a proposal stands.
Tensor accepted_tokens(const FirstOrderWorld& world, int64_t top_k) {
  const Tensor teacher = world.teacher.contiguous();
  Tensor accepted = at::zeros_like(teacher);
  for (int64_t i = 0; i < teacher.numel(); ++i) {
    const int64_t prefix = i / teacher.size(1), token = i % teacher.size(1);
    const std::span row(teacher.const_data_ptr<double>() + prefix * teacher.size(1),
                        static_cast<size_t>(teacher.size(1)));
    if (skd_accepts(row, static_cast<int32_t>(token), top_k, {})) accepted[prefix][token] = 1;
  }
  return accepted;
}

SequenceDistances trained(int64_t top_k) {
  return mean_distances(
      [=](const FirstOrderWorld& world) -> StudentLoss {
        const RowDivergence d = kd_divergence(skd_divergence({})).from_reference();
        return [=, &world, accepted = accepted_tokens(world, top_k)](const Tensor& student, int64_t) {
          return expected_divergence(world, d, student, visits(world, interleaved_rows(world, student, accepted)));
        };
      },
      10);
}

ClaimResult run(bool with_baseline) {
  const int64_t vocabulary = FirstOrderWorld{}.space.vocabulary;
  const SequenceDistances teacher = trained(0), student = trained(vocabulary),
                          both = with_baseline ? teacher : trained(1);
  ClaimResult result;
  result.tables.push_back({.title = "First-order student, forward KL after equal steps, mean of 10 worlds",
                           .columns = {text_column("responses"), number_column("total variation"),
                                       number_column("KL(student || teacher)", {}, "nats")},
                           .rows = {{"the teacher's (K = 0)", teacher.total_variation, teacher.reverse_kl},
                                    {"interleaved (K = 1)", both.total_variation, both.reverse_kl},
                                    {"the student's (K = 4)", student.total_variation, student.reverse_kl}}});
  result.assertions = {
      at_least("total variation: the teacher's responses less K = 1", teacher.total_variation - both.total_variation,
               0.01),
      at_least("total variation: the student's responses less K = 1", student.total_variation - both.total_variation,
               0.01),
      at_least("reverse KL: the teacher's responses less K = 1", teacher.reverse_kl - both.reverse_kl, 0.02),
      at_least("reverse KL: the student's responses less K = 1", student.reverse_kl - both.reverse_kl, 0.02)};
  return result;
}

const RegisteredClaim claim{
    {.name = "skd",
     .method = "skd",
     .statement = "With forward KL, responses in which the teacher replaces the student's poor tokens leave less total "
                  "variation and less reverse KL than the teacher's own responses and than the student's.",
     .paper_says = "Xu et al. 2024: better than supervised and on-policy distillation on translation, summarisation, "
                   "arithmetic and instruction following, across data sizes and starting points.",
     .baseline = "the teacher's own responses (K = 0)",
     .run = run}};

}  // namespace
}  // namespace kullback
