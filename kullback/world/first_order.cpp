#include "kullback/world/first_order.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/train/optimizer.h"
#include "kullback/world/law.h"

namespace kullback {

using at::Tensor;

Tensor FirstOrderWorld::rows(const Tensor& table) const { return table.index_select(0, previous); }

FirstOrderWorld first_order_world(uint64_t seed) {
  RandomStream stream(seed, "first-order-world");
  FirstOrderWorld world;
  const int64_t prefixes = world.space.prefixes(), vocabulary = world.space.vocabulary;
  world.teacher = random_rows(world.space, 1, 2, stream)[0];
  world.start = 0.5 * normals({vocabulary + 1, vocabulary}, stream);
  std::vector<int64_t> previous;
  for (int64_t prefix = 0; prefix < prefixes; ++prefix) {
    const std::vector<int64_t> tokens = prefix_tokens(world.space, prefix);
    previous.push_back(tokens.empty() ? 0 : 1 + tokens.back());
  }
  world.previous = at::tensor(previous, at::kLong);
  return world;
}

Tensor visits(const FirstOrderWorld& world, const Tensor& rows) {
  return prefix_logps(world.space, at::log_softmax(rows, -1).unsqueeze(0))[0].exp();
}

Tensor expected_divergence(const FirstOrderWorld& world, const RowDivergence& divergence, const Tensor& student_rows,
                           const Tensor& visits) {
  HeadRequest request;
  request.divergences = {divergence};
  HeadStatistics weights;
  weights.divergences = {visits.detach()};
  return head_loss(as_rows(student_rows), as_rows(world.teacher), request, weights).loss;
}

Tensor token_law(const FirstOrderWorld& world, const Tensor& rows) {
  return visits(world, rows).unsqueeze(1) * at::softmax(rows, 1) / world.space.length;
}

DrawnTokens drawn_tokens(const FirstOrderWorld& world, const Tensor& rows, int64_t count, RandomStream& stream) {
  const Tensor joint = token_law(world, rows).reshape(-1);
  const Tensor drawn = at::searchsorted(joint.cumsum(0), uniforms({count}, stream)).clamp_max(joint.numel() - 1);
  return {drawn.floor_divide(world.space.vocabulary), drawn % world.space.vocabulary};
}

SequenceDistances sequence_distances(const FirstOrderWorld& world, const Tensor& student_rows) {
  const auto law = [&](const Tensor& rows) {
    return response_logps(world.space, at::log_softmax(rows.detach(), -1).unsqueeze(0));  // [1,R]
  };
  const Tensor student = law(student_rows), teacher = law(world.teacher);
  const auto distance = [&](const char* name) {
    return response_divergence(divergence(name).from_reference(), student, teacher).item<double>();
  };
  return {.forward_kl = distance("kl"), .reverse_kl = distance("reverse-kl"), .total_variation = distance("tv")};
}

Tensor train_student(const FirstOrderWorld& world, const StudentLoss& loss, int64_t steps) {
  const Tensor table = world.start.clone().requires_grad_(true);
  Optimizer optimizer({{"table", table}}, {});
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor value = loss(world.rows(table), step);
    if (!std::isfinite(value.item<double>())) fail("step {}: the loss is {}", step + 1, value.item<double>());
    value.backward();
    optimizer.step(0.05);
    optimizer.clear_gradients();
  }
  return world.rows(table).detach();
}

SequenceDistances mean_distances(const std::function<StudentLoss(const FirstOrderWorld&)>& loss, int64_t seeds,
                                 int64_t steps) {
  SequenceDistances mean;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    const FirstOrderWorld world = first_order_world(static_cast<uint64_t>(seed));
    const SequenceDistances d = sequence_distances(world, train_student(world, loss(world), steps));
    const double share = 1 / static_cast<double>(seeds);
    mean.forward_kl += share * d.forward_kl;
    mean.reverse_kl += share * d.reverse_kl;
    mean.total_variation += share * d.total_variation;
  }
  return mean;
}

}  // namespace kullback
