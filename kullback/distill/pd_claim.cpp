// What pre-training distillation claims, where every row is known: the whole teacher is learnt from its rows, a truncated one
// becomes its renormalised top, and a small store gives nearly the same.
#include <ATen/ATen.h>

#include "kullback/base/random.h"
#include "kullback/distill/pd.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"

namespace kullback {
namespace {

using at::Tensor;

constexpr int64_t rows = 24, vocabulary = 12;

/// Rows of the teacher's logits, N(0, 2^2), and a token drawn from each.
struct Rowed {
  Rows teacher;
  Tensor labels;  // [1,rows]
};

Rowed world() {
  RandomStream random(1, "pd");
  Tensor logits = at::empty({rows, vocabulary}, at::kDouble);
  for (int64_t i = 0; i < logits.numel(); ++i) logits.mutable_data_ptr<double>()[i] = 2 * random.normal();
  Tensor labels = at::empty({1, rows}, at::kLong);
  const Tensor mass = at::softmax(logits, 1).cumsum(1);
  for (int64_t n = 0; n < rows; ++n) labels[0][n] = (mass[n] <= random.uniform()).sum().item<int64_t>() % vocabulary;
  Rowed made;
  made.teacher.hidden = logits, made.labels = labels;
  return made;
}

/// Log-probabilities [rows,vocabulary] of a student with a row of its own for each of the teacher's, trained by pd.
Tensor trained(const Rowed& world, const PdTarget& target, double alpha) {
  const Tensor student = at::zeros({rows, vocabulary}, at::kDouble).requires_grad_(true);
  Optimizer optimizer({{"student", student}}, {});
  Rows ours;
  ours.hidden = student;
  for (int step = 0; step < 1500; ++step) {
    optimizer.clear_gradients();
    pd_loss(ours, target, world.labels, at::ones({1, rows}, at::kBool), alpha, {.temperature = 1}).loss.backward();
    optimizer.step(0.05);
  }
  return at::log_softmax(student.detach(), 1);
}

double mean_kl(const Tensor& p, const Tensor& q) {
  return (p.exp() * (p - q)).masked_fill(p.exp() == 0, 0).sum(1).mean().item<double>();
}

ClaimResult run(bool with_baseline) {
  const double alpha = with_baseline ? 0 : 1;
  const Rowed w = world();
  const Tensor teacher = at::log_softmax(w.teacher.hidden, 1);
  const PdTarget whole = pd_truncate(w.teacher, 1, vocabulary), top = pd_truncate(w.teacher, 0.9, 6);
  PdTarget stored = top;
  stored.logps = top.logps.clone();
  const TeacherStoreFormat small{.vocabulary = vocabulary, .k = 6, .value_bits = 8, .delta_exp = 4};
  const std::vector<TeacherRow> kept = pd_rows(top);
  for (int64_t n = 0; n < rows; ++n) {
    const TeacherRow row = stored_row(kept[static_cast<size_t>(n)], small);
    for (size_t i = 0; i < row.logps.size(); ++i) stored.logps[n][static_cast<int64_t>(i)] = row.logps[i];
  }
  const Tensor truncated = pd_law(top, {.temperature = 1});
  const Tensor target = at::zeros({rows, vocabulary}, at::kDouble).scatter_add(1, top.ids, truncated).log();
  const double lost = -top.logps.exp().masked_fill(~top.kept, 0).sum(1).log().mean().item<double>();

  const Tensor of_whole = trained(w, whole, alpha), of_top = trained(w, top, alpha),
               of_store = trained(w, stored, alpha);
  ClaimResult result;
  Table table{.title = "A student with a row of its own for each of 24, trained on the teacher's rows",
              .columns = {text_column("kept of the teacher"), number_column("KL(teacher || student)", {}, "nats"),
                          number_column("KL(kept || student)", {}, "nats"),
                          number_column("KL(student || teacher)", {}, "nats")}};
  for (const auto& [name, student] :
       {std::pair{"whole rows", of_whole}, {"p 0.9, k 6", of_top}, {"the same, 8 bits", of_store}})
    table.rows.push_back({name, mean_kl(teacher, student), mean_kl(target, student), mean_kl(student, teacher)});
  result.tables.push_back(std::move(table));
  result.assertions = {
      at_most("whole rows: KL(teacher || student)", mean_kl(teacher, of_whole), 1e-3),
      at_most("truncated rows: KL(kept || student)", mean_kl(target, of_top), 0.01),
      at_most("truncated rows: KL(student || teacher) is off from -log M by", std::abs(mean_kl(of_top, teacher) - lost),
              0.02),
      at_most("stored in 8 bits: KL(kept || student)", mean_kl(target, of_store), 0.01 + store_bounds(small, 1).kl)};
  return result;
}

const RegisteredClaim claim{
    {.name = "pd",
     .method = "pd",
     .statement = "Trained on the teacher's whole rows a student becomes the teacher; on truncated rows their "
                  "renormalised top, which costs -log of the kept mass; a store of 8 bits a token changes that by less "
                  "than its bound.",
     .paper_says = "Peng et al. 2025: from a store of 15 TB in place of 58.6 PB of logits, pre-training distillation "
                   "raises a 1.9 B student's average from 37.7 to 41.2.",
     .baseline = "language modelling alone (alpha 0)",
     .run = run}};

}  // namespace
}  // namespace kullback
