// What preferring the teacher's outputs claims, where the expectation over pairs can be taken exactly.
#include <ATen/ATen.h>

#include "kullback/distill/dpkd.h"
#include "kullback/world/claim.h"
#include "kullback/world/first_order.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// All pairs of responses, y_t ~ p and y_s ~ q, each with its probability; no gradient goes through the drawing. The pair's loss
/// depends on its two log-ratios alone, so each response is a token of its own. [R^2] pairs.
struct Pairs {
  PreferenceBatch batch;
  Tensor probability;
};
Pairs all_pairs(const FirstOrderWorld& world, const Tensor& student) {
  const auto law = [&](const Tensor& rows) {
    return response_logps(world.space, at::log_softmax(rows, -1).unsqueeze(0))[0];  // [R]
  };
  const Tensor q = law(student), p = law(world.teacher);
  const int64_t count = q.size(0);
  const auto chosen = [&](const Tensor& v) { return v.repeat_interleave(count).unsqueeze(1); };  // [R^2,1]
  const auto rejected = [&](const Tensor& v) { return v.repeat({count}).unsqueeze(1); };
  const Tensor mask = at::ones({count * count, 1}, at::kBool);
  const auto side = [&](const auto& laid) {
    return Side{.logps = laid(q), .reference_logps = laid(p), .mask = mask, .divergences = {}};
  };
  const Tensor probability = (chosen(p) + rejected(q.detach())).squeeze(1).exp();
  PreferenceBatch batch{.chosen = side(chosen), .rejected = side(rejected), .weight = probability};
  batch.pairs_in_step = 1;
  return {.batch = std::move(batch), .probability = probability};
}

double accuracy(const FirstOrderWorld& world, const Tensor& student, const DpkdOptions& o) {
  const Pairs pairs = all_pairs(world, student);
  const DpkdLoss l = dpkd_sequence_loss(pairs.batch, o);
  return (pairs.probability * (l.chosen_rewards > l.rejected_rewards)).sum().item<double>();
}

ClaimResult run(bool with_baseline) {
  const DpkdOptions o{.beta = 0.1};
  constexpr int64_t worlds = 3, steps = 400;
  SequenceDistances kd, ours;
  double before = 0, after = 0;
  for (uint64_t seed = 0; seed < worlds; ++seed) {
    const FirstOrderWorld world = first_order_world(seed);
    const Tensor of_teacher = visits(world, world.teacher);
    // Forward KL alone, or its half beside the preference: cross-entropy on the teacher's responses with soft labels.
    const auto forward_kl = [&](const Tensor& student) {
      return expected_divergence(world, divergence("kl").from_reference(), student, of_teacher);
    };
    const Tensor plain = train_student(
        world, [&](const Tensor& student, int64_t) { return forward_kl(student); }, steps);
    const Tensor trained = with_baseline ? plain
                                         : train_student(
                                               world,
                                               [&](const Tensor& student, int64_t) {
                                                 return dpkd_sequence_loss(all_pairs(world, student).batch, o).loss;
                                               },
                                               steps);
    const auto add = [&](SequenceDistances& sum, const Tensor& rows) {
      const SequenceDistances d = sequence_distances(world, rows);
      sum.forward_kl += d.forward_kl / worlds, sum.reverse_kl += d.reverse_kl / worlds;
    };
    add(kd, plain), add(ours, trained);
    before += accuracy(world, world.rows(world.start), o) / worlds, after += accuracy(world, trained, o) / worlds;
  }
  ClaimResult result;
  result.tables.push_back({.title = "First-order student after equal steps, mean of 3 worlds",
                           .columns = {text_column("objective"), number_column("KL(student || teacher)", {}, "nats"),
                                       number_column("KL(teacher || student)", {}, "nats"), number_column("accuracy")},
                           .rows = {{"forward KL", kd.reverse_kl, kd.forward_kl, before},
                                    {"DPKD", ours.reverse_kl, ours.forward_kl, after}}});
  result.assertions = {
      at_least("reverse KL of responses: forward KL training less DPKD", kd.reverse_kl - ours.reverse_kl, 0.005),
      at_most("forward KL of responses: DPKD less forward KL training", ours.forward_kl - kd.forward_kl, 0.005),
      at_least("share of pairs ranked as wanted: after less before", after - before, 0.01)};
  return result;
}

const RegisteredClaim claim{
    {.name = "dpkd",
     .method = "dpkd",
     .statement =
         "Preferring the teacher's responses to the student's own leaves less reverse KL than forward-KL training "
         "does while forward KL stays as low, and the student comes to rank such pairs as wanted.",
     .paper_says =
         "Li et al. 2024: better ROUGE-L and exact match than KD, SeqKD and MiniLLM from 120M to 13B parameters; "
         "implicit reward and preference are useful in themselves.",
     .baseline = "forward KL on the teacher's responses",
     .run = run}};

}  // namespace
}  // namespace kullback
