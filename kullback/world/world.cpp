#include "kullback/world/world.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/world/law.h"
#include "kullback/world/optimum.h"
#include "kullback/world/policy.h"
#include "kullback/world/reward.h"

namespace kullback {

using at::Tensor;

const Options<WorldOptions>& world_options() {
  static const auto options =
      Options<WorldOptions>()
          .option("vocabulary", &WorldOptions::vocabulary, between(2, 8),
                  "tokens, that which ends a response among them")
          .option("length", &WorldOptions::length, between(1, 6), "most tokens of a response, the end token counted")
          .option("prompts", &WorldOptions::prompts, between(1, 64), "prompts, each with a law and rewards of its own")
          .option("policy", &WorldOptions::policy,
                  {{"tabular", WorldOptions::Policy::tabular}, {"transformer", WorldOptions::Policy::transformer}},
                  "a row of logits a prefix, or a tiny transformer by the code of real models")
          .option("spread", &WorldOptions::spread, non_negative,
                  "deviation of the reference's logits (of the transformer's weights)")
          .option("reward", &WorldOptions::reward, std::string("the reward: ") + reward_grammar)
          .option("proxy", &WorldOptions::proxy,
                  "the reward that preferences are labelled by; empty: the reward itself")
          .option("world-seed", &WorldOptions::seed, non_negative, "of the reference, the prompts and random rewards");
  return options;
}

World make_world(const WorldOptions& o) {
  World world;
  world.space = {.vocabulary = o.vocabulary, .length = o.length};
  world.table = sequence_table(world.space);
  const auto seed = static_cast<uint64_t>(o.seed);
  RandomStream prompts(seed, "world/prompts"), reference(seed, "world/reference");
  world.prompts = at::softmax(normals({o.prompts}, prompts), 0);
  if (o.policy == WorldOptions::Policy::transformer) {
    world.transformer = world_transformer(world.space, o.prompts, o.spread, seed);
    const Policy policy = transformer_policy(*world.transformer, world.space, o.prompts);
    world.reference_rows = policy.log_rows(world.space).detach();
  } else {
    world.reference_rows = random_rows(world.space, o.prompts, o.spread, reference);
  }
  world.reference = response_logps(world.space, world.reference_rows);
  world.reward = rewards(o.reward, world.space, world.table, world.reference, seed, "--reward");
  world.proxy =
      o.proxy.empty() ? world.reward : rewards(o.proxy, world.space, world.table, world.reference, seed, "--proxy");
  return world;
}

World make_world(const SequenceSpace& space, const Tensor& reference, const Tensor& reward) {
  const int64_t prompts = reference.size(0);
  return {.space = space,
          .table = sequence_table(space),
          .prompts = at::full({prompts}, 1.0 / static_cast<double>(prompts), at::kDouble),
          .reference_rows = conditional_logps(space, reference),
          .reference = reference,
          .reward = reward,
          .proxy = reward,
          .transformer = {}};
}

double over_prompts(const World& world, const Tensor& values) { return (world.prompts * values).sum().item<double>(); }

Standing standing(const World& world, const Tensor& rows) {
  const at::NoGradGuard no_grad;
  const Tensor logps = response_logps(world.space, rows);
  const auto mean = [&](const Tensor& values) { return over_prompts(world, values); };
  const Divergence kl = divergence("kl");
  Standing s;
  s.reward = mean(expectation(logps, world.reward));
  s.proxy = mean(expectation(logps, world.proxy));
  s.kl = mean(response_divergence(kl.from_policy(), logps, world.reference));
  s.reverse_kl = mean(response_divergence(kl.from_reference(), logps, world.reference));
  s.entropy = mean(response_entropy(logps));
  s.length = mean(expected_length(world.space, rows));
  s.frontier_reward = frontier_reward(world, s.kl);
  return s;
}

Tensor best_policy(const World& world, double beta) { return optimum(world.reference, world.reward, beta).logps; }

FrontierPoint frontier_point(const World& world, double beta) {
  const at::NoGradGuard no_grad;
  const Optimum best = optimum(world.reference, world.reward, beta);
  const Tensor reward = expectation(best.logps, world.reward);  // [C]
  // ln(pi*/reference) = reward / beta - ln Z, so that no divergence has to be summed.
  return {.beta = beta,
          .kl = std::max(0.0, over_prompts(world, reward / beta - best.log_partition)),
          .reward = over_prompts(world, reward)};
}

namespace {

/// Beyond these the optimum is the reference, or the best responses alone, to within rounding.
double loosest(const World& world) { return 1e8 * std::max(1e-300, world.reward.abs().max().item<double>()); }
double tightest(const World& world) { return 1e-3 * std::max(1e-300, world.reward.abs().max().item<double>()); }

/// The optimum that has this KL, by bisection: KL falls as beta grows.
FrontierPoint at_kl(const World& world, double kl, int iterations) {
  double low = std::log(tightest(world)), high = std::log(loosest(world));
  FrontierPoint point = frontier_point(world, std::exp(low));
  if (kl >= point.kl) return point;
  for (int i = 0; i < iterations; ++i) {
    const double middle = (low + high) / 2;
    point = frontier_point(world, std::exp(middle));
    (point.kl > kl ? low : high) = middle;
  }
  return point;
}

}  // namespace

std::vector<FrontierPoint> frontier(const World& world, int64_t count) {
  const double most = frontier_point(world, tightest(world)).kl;
  std::vector<FrontierPoint> points{
      {.beta = INFINITY, .kl = 0, .reward = over_prompts(world, expectation(world.reference, world.reward))}};
  for (int64_t i = 1; i < count; ++i) {
    points.push_back(at_kl(world, 0.98 * most * static_cast<double>(i) / static_cast<double>(count - 1), 16));
  }
  return points;
}

double frontier_reward(const World& world, double kl) { return at_kl(world, kl, 60).reward; }

}  // namespace kullback
