// What Sinkhorn distillation claims: beside KL, the cost of moving one cloud of laws to the other makes a closer student.
#include <ATen/ATen.h>
#include <cmath>

#include "kullback/distill/counted.h"
#include "kullback/distill/sinkd.h"
#include "kullback/divergence/row_blocks.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/claim.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;

/// Points of 18 Gaussian clusters in 12 dimensions, three clusters a class.
struct Points {
  Tensor x, label;  // [N,12], [N]
};
Points points(int64_t count, const Tensor& centres, RandomStream& stream) {
  std::vector<int64_t> clusters(static_cast<size_t>(count));
  for (int64_t& cluster : clusters) cluster = static_cast<int64_t>(stream.below(18));
  const Tensor which = at::tensor(clusters, at::kLong);
  return {centres.index_select(0, which) + normals({count, 12}, stream), which % 6};
}

/// A network of one hidden layer.
struct Network {
  Tensor w1, b1, w2, b2;
  Network(int64_t width, RandomStream& stream)
      : w1((normals({width, 12}, stream) / std::sqrt(12.0)).requires_grad_(true)),
        b1(at::zeros({width}, at::kDouble).requires_grad_(true)),
        w2((normals({6, width}, stream) / std::sqrt(static_cast<double>(width))).requires_grad_(true)),
        b2(at::zeros({6}, at::kDouble).requires_grad_(true)) {}
  Tensor logits(const Tensor& x) const { return at::matmul(at::tanh(at::matmul(x, w1.t()) + b1), w2.t()) + b2; }
  std::vector<NamedTensor> parameters() const { return {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}}; }
};

void train(const Network& network, int64_t steps, const std::function<Tensor(const Tensor&)>& loss, const Tensor& x) {
  Optimizer adam(network.parameters(), {});
  for (int64_t step = 0; step < steps; ++step) {
    loss(network.logits(x)).backward();
    adam.step(0.01);
    adam.clear_gradients();
  }
}

/// Total variation between the teacher's and the student's laws on 2000 new points, after distillation with this weight of the
/// Sinkhorn cost.
double distance(uint64_t seed, double sinkhorn_weight) {
  RandomStream stream(seed, "claim/sinkd");
  const Tensor centres = 1.5 * normals({18, 12}, stream);
  const Points many = points(1500, centres, stream), few = points(200, centres, stream),
               fresh = points(2000, centres, stream);
  const Network teacher(128, stream), student(6, stream);
  const auto mask = [](const Points& p) { return at::ones({1, p.x.size(0)}, at::kBool); };
  const Tensor share = at::full({1500}, 1.0 / 1500, at::kDouble);
  train(
      teacher, 150, [&](const Tensor& z) { return cross_entropy(as_rows(z), many.label, share).loss; }, many.x);
  const Tensor taught = teacher.logits(few.x).detach();
  const SinkdOptions o{.sinkhorn_weight = sinkhorn_weight};
  train(
      student, 300,
      [&](const Tensor& z) {
        return sinkd_loss(as_rows(z), as_rows(taught), few.label.unsqueeze(0), mask(few), o).loss;
      },
      few.x);
  const at::NoGradGuard no_grad;
  return row_divergence(divergence("tv").from_reference(), student.logits(fresh.x), teacher.logits(fresh.x))
      .mean()
      .item<double>();
}

ClaimResult run(bool with_baseline) {
  Table table{.title = "Total variation to the teacher on new points",
              .columns = {number_column("seed"), number_column("KL"), number_column("KL and Sinkhorn")}};
  double kl = 0, both = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const double alone = distance(seed, 0), together = distance(seed, with_baseline ? 0 : 0.8);
    table.rows.push_back({static_cast<int64_t>(seed), alone, together});
    kl += alone / 4, both += together / 4;
  }
  ClaimResult result;
  result.tables.push_back(std::move(table));
  result.assertions = {at_least("total variation, mean of 4 seeds: KL alone less KL with Sinkhorn", kl - both, 0.002)};
  return result;
}

const RegisteredClaim claim{
    {.name = "sinkd",
     .method = "sinkd",
     .statement =
         "A small student of few samples is closer to its teacher on new points when the Sinkhorn cost is added "
         "to KL and cross-entropy.",
     .paper_says =
         "Cui et al. 2024: KL, reverse KL and JS fail where teacher and student hardly overlap; with the Sinkhorn "
         "cost students are better on GLUE and SuperGLUE.",
     .baseline = "weight 0 of the Sinkhorn cost",
     .run = run}};

}  // namespace
}  // namespace kullback
