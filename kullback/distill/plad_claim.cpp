// What PLaD claims, on all pairs of a world's responses: a student that is only told which of two responses is the teacher's
// comes to rank as the teacher would.
#include <ATen/ATen.h>

#include "kullback/distill/plad.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"

namespace kullback {
namespace {

using at::Tensor;

/// Teacher and untrained student on K responses: the teacher is the student's best policy for a reward at beta 1, so that the
/// ratio of the two ranks responses as the reward does.
struct Laws {
  Tensor student, reward, teacher;  // [K] log-probabilities and reward
};
Laws laws(int64_t count, uint64_t seed) {
  RandomStream stream(seed, "claim/plad");
  const Tensor student = at::log_softmax(normals({count}, stream), 0), reward = normals({count}, stream);
  return {student, reward, optimum(student, reward, 1).logps};
}

/// All pairs, y+ ~ `chosen_law` and y- of the untrained student, under a law q of K responses; each is a token of its own. [K^2]
PreferenceBatch all_pairs(const Tensor& q, const Tensor& chosen_law, const Tensor& student) {
  const int64_t count = q.size(0);
  const Tensor mask = at::ones({count * count, 1}, at::kBool);
  const auto side = [&](const Tensor& v) {
    return Side{.logps = v.unsqueeze(1), .reference_logps = {}, .mask = mask, .divergences = {}};
  };
  PreferenceBatch batch{.chosen = side(q.repeat_interleave(count)), .rejected = side(q.repeat({count})), .weight = {}};
  batch.weight = (chosen_law.unsqueeze(1) + student.unsqueeze(0)).exp().reshape(-1);
  batch.pairs_in_step = 1;
  return batch;
}

/// The student after training on all pairs. [K] log-probabilities
Tensor trained(const Laws& l, bool on_own_responses) {
  const Tensor logits = l.student.clone().requires_grad_(true);
  Optimizer optimizer({{"logits", logits}}, {});
  constexpr int64_t steps = 1000;
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor q = log_probabilities(as_rows(logits)).squeeze(0);
    plad_loss(all_pairs(q, on_own_responses ? l.student : l.teacher, l.student), {}).loss.backward();
    optimizer.step(0.05 * (1 - static_cast<double>(step) / steps));
    optimizer.clear_gradients();
  }
  return at::log_softmax(logits.detach(), 0);
}

/// Probability that the student ranks the teacher's response above its old one, both drawn.
double accuracy(const Laws& l, const Tensor& q) {
  const PreferenceBatch b = all_pairs(q, l.teacher, l.student);
  return (b.weight * (plad_loss(b, {}).gap > 0)).sum().item<double>();
}

/// Spearman's correlation of ranks.
double rank_correlation(const Tensor& a, const Tensor& b) {
  const auto ranks = [](const Tensor& v) {
    const Tensor r = v.argsort().argsort().to(at::kDouble);
    return r - r.mean();
  };
  const Tensor x = ranks(a), y = ranks(b);
  return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).item<double>();
}

ClaimResult run(bool with_baseline) {
  Table table{.title = "Trained on all pairs; 12 responses, 3 seeds",
              .columns = {text_column("student"), number_column("ranking accuracy"), number_column("reward"),
                          number_column("rank correlation with teacher / untrained student")}};
  double accuracy_gain = INFINITY, reward_gain = INFINITY, correlation_gain = INFINITY;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Laws l = laws(12, seed);
    const Tensor q = trained(l, with_baseline);
    const auto measured = [&](const Tensor& law) {
      return std::array{accuracy(l, law), expectation(law, l.reward).item<double>(),
                        rank_correlation(law, l.teacher - l.student)};
    };
    const auto before = measured(l.student), after = measured(q);
    table.rows.push_back({fmt::format("before, seed {}", seed), before[0], before[1], before[2]});
    table.rows.push_back({fmt::format("after, seed {}", seed), after[0], after[1], after[2]});
    accuracy_gain = std::min(accuracy_gain, after[0] - before[0]);
    reward_gain = std::min(reward_gain, after[1] - before[1]);
    correlation_gain = std::min(correlation_gain, after[2] - before[2]);
  }
  const Laws two = laws(2, 3);
  const Tensor q = trained(two, with_baseline);
  const double gap = (q[two.reward.argmax()] - q[two.reward.argmin()]).item<double>();
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_least("gain in ranking accuracy, least of the seeds", accuracy_gain, 0.02),
      at_least("gain in expected reward, least of the seeds", reward_gain, 0.1),
      at_least("gain in rank correlation, least of the seeds", correlation_gain, 0.1),
      at_most("two responses: |gap - beta| in favour of the one the teacher says more often", std::abs(gap - 1), 1e-3)};
  return result;
}

const RegisteredClaim claim{
    {.name = "plad",
     .method = "plad",
     .statement =
         "On all pairs of teacher's and student's responses the student comes to rank by how much more often the "
         "teacher gives a response; of two responses the gap ends exactly at beta.",
     .paper_says = "Zhang et al. 2024: better than supervised fine-tuning on the teacher's text and than other "
                   "sequence-level distillation, in win rate and ROUGE, on TL;DR and Anthropic-HH.",
     .baseline = "the student's own responses in the place of the teacher's",
     .run = run}};

}  // namespace
}  // namespace kullback
