// What MiniLLM claims, where everything can be enumerated: its gradient is that of the reverse KL of whole responses, and
// following it leaves less reverse KL than divergences of next-token laws do.
#include <ATen/ATen.h>

#include "kullback/distill/minillm.h"
#include "kullback/world/claim.h"
#include "kullback/world/first_order.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// The paper's gradient with every response once, weighed by its probability: no sampling, no discount, no clip.
Tensor exact_loss(const FirstOrderWorld& world, const SequenceTable& table, const Tensor& student) {
  const Tensor prefixes = table.prefixes.reshape(-1);
  Responses b;
  b.student = as_rows(student.index_select(0, prefixes)), b.teacher = as_rows(world.teacher.index_select(0, prefixes));
  b.labels = table.tokens, b.mask = table.mask, b.tokens_in_step = 1;
  const auto logps = [&](const Rows& rows) {
    return label_logps(rows, table.tokens.reshape(-1)).detach().reshape(table.tokens.sizes());
  };
  const Tensor q = logps(b.student), p = logps(b.teacher);
  MinillmOptions o{.teacher_mix = 0, .gamma = 1, .length_norm = false, .reward_scaling = 1, .reward_clip = 0};
  o.reward_to_go = MinillmOptions::RewardToGo::exclusive, o.whiten = MinillmOptions::Whiten::none;
  o.clip = 1, o.single_step_weight = MinillmOptions::SingleStepWeight::importance;
  const Tensor advantages = minillm_advantages(minillm_rewards(p, q, b.mask, o).rewards, b.mask, o);
  return minillm_loss(b, advantages, q, q.sum(1, true).exp().expand_as(q), {}, o).loss;
}

ClaimResult run(bool with_baseline) {
  const SequenceTable table = sequence_table(FirstOrderWorld{}.space);
  const auto token_level = [](const char* name, bool on_student) {
    return mean_distances([=](const FirstOrderWorld& world) -> StudentLoss {
      return [&world, on_student, d = divergence(name).from_reference(), of_teacher = visits(world, world.teacher)](
                 const Tensor& student, int64_t) {
        return expected_divergence(world, d, student, on_student ? visits(world, student) : of_teacher);
      };
    });
  };
  const SequenceDistances forward = token_level("kl", false), reverse = token_level("reverse-kl", true);
  const SequenceDistances ours =
      with_baseline ? reverse : mean_distances([&](const FirstOrderWorld& world) -> StudentLoss {
        return [&](const Tensor& student, int64_t) { return exact_loss(world, table, student); };
      });
  Table shown{.title = "First-order student after equal steps, mean of 5 worlds",
              .columns = {text_column("objective"), number_column("KL(student || teacher)", {}, "nats"),
                          number_column("KL(teacher || student)", {}, "nats")}};
  shown.rows = {{"forward KL on the teacher's responses", forward.reverse_kl, forward.forward_kl},
                {"reverse KL on the student's responses", reverse.reverse_kl, reverse.forward_kl},
                {"MiniLLM", ours.reverse_kl, ours.forward_kl}};
  ClaimResult result;
  result.tables.push_back(std::move(shown));
  result.assertions = {
      at_least("reverse KL of responses: forward KL training less MiniLLM", forward.reverse_kl - ours.reverse_kl, 0.5),
      at_least("reverse KL of responses: token-level reverse KL less MiniLLM", reverse.reverse_kl - ours.reverse_kl,
               0.3),
      at_least("forward KL of responses: MiniLLM less forward KL training (it drops modes)",
               ours.forward_kl - forward.forward_kl, 0.5)};
  return result;
}

const RegisteredClaim claim{
    {.name = "minillm",
     .method = "minillm",
     .statement =
         "Following the gradient of the reverse KL of whole responses leaves less of it than forward KL on the "
         "teacher's responses and than token-level reverse KL on the student's, at the price of forward KL.",
     .paper_says = "Gu et al. 2023: reverse KL of sequences by policy gradient keeps small students to the teacher's "
                   "main modes, with better calibration and less exposure bias than KD and SeqKD.",
     .baseline = "token-level reverse KL on the student's responses, without the term through sampling",
     .run = run}};

}  // namespace
}  // namespace kullback
