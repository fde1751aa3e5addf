// What knowledge distillation claims, where everything can be enumerated: each divergence draws the student to its own
// optimum, and soft targets leave less to learn by than labels do.
#include <ATen/ATen.h>

#include "kullback/distill/kd.h"
#include "kullback/world/claim.h"
#include "kullback/world/first_order.h"

namespace kullback {
namespace {

/// The distances after training on the teacher's own responses, all of them, in the divergence that the options name.
SequenceDistances on_teacher_data(const KdOptions& options) {
  return mean_distances([&](const FirstOrderWorld& world) -> StudentLoss {
    const RowDivergence d = kd_divergence(options).from_reference();
    const at::Tensor teacher_visits = visits(world, world.teacher);
    return [=, &world](const at::Tensor& student, int64_t) {
      return expected_divergence(world, d, student, teacher_visits);
    };
  });
}

ClaimResult run(bool with_baseline) {
  using Objective = KdOptions::Objective;
  const SequenceDistances forward = on_teacher_data({.divergence = Objective::forward_kl}),
                          reverse = on_teacher_data(
                              {.divergence = with_baseline ? Objective::forward_kl : Objective::reverse_kl}),
                          js = on_teacher_data({.divergence = Objective::js});
  ClaimResult result;
  Table table{.title = "First-order student on the teacher's responses, mean of 5 worlds",
              .columns = {text_column("divergence"), number_column("KL(teacher || student)", {}, "nats"),
                          number_column("KL(student || teacher)", {}, "nats"), number_column("total variation")}};
  for (const auto& [name, d] : {std::pair{"forward_kl", forward}, {"reverse_kl", reverse}, {"js", js}})
    table.rows.push_back({name, d.forward_kl, d.reverse_kl, d.total_variation});
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_least("forward KL after reverse_kl less that after forward_kl", reverse.forward_kl - forward.forward_kl, 0.01),
      at_least("forward KL after js less that after forward_kl", js.forward_kl - forward.forward_kl, 0.001),
      at_least("reverse KL after forward_kl less that after reverse_kl", forward.reverse_kl - reverse.reverse_kl, 0.01),
      at_least("total variation after forward_kl less that after js", forward.total_variation - js.total_variation,
               0.001)};
  return result;
}

const RegisteredClaim claim{
    {.name = "kd",
     .method = "kd",
     .statement =
         "On the teacher's responses forward KL leads to the least forward KL of whole responses, and reverse KL "
         "to less reverse KL than forward KL does.",
     .paper_says =
         "Hinton et al. 2015 and Kim and Rush 2016: soft targets and teacher sequences beat training on labels "
         "alone; which divergence is matched decides what the student keeps of the teacher.",
     .baseline = "forward KL in the place of reverse KL",
     .run = run}};

}  // namespace
}  // namespace kullback
