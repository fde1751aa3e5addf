// What ATKD claims: a confident teacher silences what it knows of the tokens beside the label in the plain KL, and not in
// ATKD, so that a more confident teacher does not make a worse student.
#include <ATen/ATen.h>
#include <cmath>

#include "kullback/distill/atkd.h"
#include "kullback/distill/kd.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"
#include "kullback/world/first_order.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// The loss of N tokens, one sequence: ATKD's, or the plain KL.
Tensor loss_of(const Tensor& student, const Tensor& teacher, const Tensor& labels, bool atkd) {
  const Tensor mask = at::ones({1, labels.size(0)}, at::kBool);
  return atkd ? atkd_loss(as_rows(student), as_rows(teacher), labels.unsqueeze(0), mask, {}).loss
              : kd_loss(as_rows(student), as_rows(teacher), {}, mask, {}).loss;
}

/// Norm of the loss's gradient for a token whose label both models give 1 - u and on whose other tokens they disagree.
double gradient(double u, bool atkd) {
  const Tensor others =
      at::log_softmax(at::tensor({0.0, 2.0, 1.0, -1.0, 1.0, -1.0, 0.0, 2.0}, at::kDouble).view({2, 4}), 1);
  const Tensor label = at::full({2, 1}, std::log1p(-u), at::kDouble);
  const Tensor rows = at::cat({label, others + std::log(u)}, 1);
  const Tensor student = rows.narrow(0, 0, 1).clone().requires_grad_(true);
  loss_of(student, rows.narrow(0, 1, 1), at::zeros({1}, at::kLong), atkd).backward();
  return student.grad().norm().item<double>();
}

/// How far the student is from the teacher itself where it learned from 400 tokens of a teacher whose likeliest token has
/// `surer` more in its logit: KL(teacher || student) of responses, mean of 5 worlds.
double after_training(double surer, bool atkd) {
  double mean = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const FirstOrderWorld world = first_order_world(seed);
    const Tensor top = world.teacher == std::get<0>(world.teacher.max(1, true));
    const Tensor sharp = at::log_softmax(world.teacher + surer * top, 1);
    RandomStream stream(seed, "claim/atkd");
    const DrawnTokens drawn = drawn_tokens(world, sharp, 400, stream);
    const Tensor teacher = sharp.index_select(0, drawn.prefixes);
    const Tensor trained = train_student(
        world,
        [&](const Tensor& rows, int64_t) {
          return loss_of(rows.index_select(0, drawn.prefixes), teacher, drawn.labels, atkd);
        },
        400);
    mean += sequence_distances(world, trained).forward_kl / 5;
  }
  return mean;
}

ClaimResult run(bool with_baseline) {
  const bool atkd = !with_baseline;
  ClaimResult result;
  Table gradients{.title = "Gradient of one token whose label both models agree on",
                  .columns = {number_column("u = 1 - p(label)"), number_column("plain KL"), number_column("ATKD")}};
  for (const double u : {0.5, 1e-2, 1e-4, 1e-6}) gradients.rows.push_back({u, gradient(u, false), gradient(u, atkd)});
  Table students{
      .title = "KL(teacher || student) after learning from a teacher made surer of its likeliest tokens",
      .columns = {number_column("surer by"), number_column("plain KL", {}, "nats"), number_column("ATKD", {}, "nats")}};
  const double plain = after_training(0, false), ours = after_training(0, atkd);
  const double surer_plain = after_training(8, false), surer_ours = after_training(8, atkd);
  students.rows = {{0, plain, ours}, {8, surer_plain, surer_ours}};
  result.tables = {gradients, students};
  result.assertions = {at_most("plain KL's gradient at u = 1e-6 as a share of that at 0.5",
                               gradient(1e-6, false) / gradient(0.5, false), 3e-6),
                       at_least("ATKD's gradient at u = 1e-6 as a share of that at 0.5",
                                gradient(1e-6, atkd) / gradient(0.5, atkd), 0.9),
                       at_least("what the surer teacher costs plain KL", surer_plain - plain, 1),
                       at_least("and how much less it costs ATKD", surer_plain - plain - (surer_ours - ours), 0.3),
                       at_least("KL after the surer teacher: plain KL less ATKD", surer_plain - surer_ours, 0.2)};
  return result;
}

const RegisteredClaim claim{
    {.name = "atkd",
     .method = "atkd",
     .statement =
         "What the teacher says of the tokens beside the label counts 1 - p(label) in the plain KL and fully in "
         "ATKD; a teacher that is too sure of its likeliest tokens hurts ATKD's student less.",
     .paper_says =
         "Zhong et al. 2024: larger, more confident teachers make worse students under plain distillation; ATKD "
         "gains up to 3.04 points on average and larger teachers stop hurting.",
     .baseline = "the plain KL in the place of ATKD",
     .run = run}};

}  // namespace
}  // namespace kullback
