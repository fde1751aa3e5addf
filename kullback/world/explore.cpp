#include "kullback/world/explore.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kullback/report/number.h"
#include "kullback/world/law.h"

namespace kullback {
namespace {

using at::Tensor;
using NamedRows = std::vector<std::pair<std::string, Tensor>>;

/// The optimum and best-of-n, then the policies asked for.
NamedRows policies(const World& world, const ViewRequest& request) {
  NamedRows all;
  all.emplace_back(fmt::format("optimum, beta {}", request.optimum_beta),
                   conditional_logps(world.space, best_policy(world, request.optimum_beta)));
  for (const int64_t n : {4, 16}) {
    all.emplace_back(fmt::format("best of {}", n),
                     conditional_logps(world.space, best_of_n(world.reference, world.proxy, n)));
  }
  all.insert(all.end(), request.policies.begin(), request.policies.end());
  return all;
}

std::vector<ResponseView> best_responses(const World& world, int64_t prompt, int64_t count, const NamedRows& shown) {
  const auto reward = world.reward.accessor<double, 2>();
  std::vector<int64_t> order(static_cast<size_t>(world.reward.size(1)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return reward[prompt][a] > reward[prompt][b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(count)));
  std::vector<Tensor> laws;
  for (const auto& [name, rows] : shown) laws.push_back(response_logps(world.space, rows)[prompt].exp());
  std::vector<ResponseView> responses;
  for (const int64_t r : order) {
    ResponseView view{.text = response_text(world.space, world.table, r),
                      .reward = reward[prompt][r],
                      .reference = world.reference[prompt][r].exp().item<double>(),
                      .policies = {}};
    for (const Tensor& law : laws) view.policies.push_back(law[r].item<double>());
    responses.push_back(std::move(view));
  }
  return responses;
}

}  // namespace

WorldView look_at(const World& world, const ViewRequest& request) {
  const at::NoGradGuard no_grad;
  const NamedRows all = policies(world, request);
  WorldView view;
  view.description = fmt::format(
      "{} prompts, {} tokens, responses of at most {}: {} prefixes and {} responses a prompt", world.prompts.size(0),
      world.space.vocabulary, world.space.length, world.space.prefixes(), world.space.responses());
  view.has_proxy = !world.proxy.is_same(world.reward);
  view.prompt = world.prompts.argmax().item<int64_t>();
  view.prompt_probability = world.prompts[view.prompt].item<double>();
  for (const auto& [name, rows] : all) view.policy_names.push_back(name);
  view.responses = best_responses(world, view.prompt, request.responses, all);
  view.frontier = frontier(world, request.frontier);
  view.divergence_names = request.divergences;
  view.standings.emplace_back("reference", standing(world, world.reference_rows));
  for (const auto& [name, rows] : all) {
    view.standings.emplace_back(name, standing(world, rows));
    std::vector<std::pair<double, double>> numbers;
    const Tensor logps = response_logps(world.space, rows);
    for (const std::string& divergence_name : request.divergences) {
      const RowDivergence d = divergence(divergence_name).from_policy();
      numbers.emplace_back(over_prompts(world, response_divergence(d, logps, world.reference)),
                           over_prompts(world, token_divergence(world.space, d, rows, world.reference_rows)));
    }
    view.divergences.emplace_back(name, std::move(numbers));
  }
  return view;
}

}  // namespace kullback
