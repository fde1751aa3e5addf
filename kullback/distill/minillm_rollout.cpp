#include "kullback/distill/minillm_rollout.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/random.h"
#include "kullback/distill/stored_responses.h"
#include "kullback/divergence/head.h"

namespace kullback {
namespace {

using at::Tensor;

std::vector<int64_t> shuffled(int64_t count, uint64_t seed, const char* purpose, int64_t number) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  RandomStream(seed, purpose, static_cast<uint64_t>(number)).shuffle(order);
  return order;
}

/// The prompts of a rollout: all examples go by in shuffled order, again and again.
std::vector<int64_t> rollout_examples(const DistillationStep& step, int64_t rollout, int64_t count) {
  const int64_t all = step.run.examples();
  std::vector<int64_t> examples, order;
  for (int64_t i = rollout * count, pass = -1; i < (rollout + 1) * count; ++i) {
    if (i / all != pass) order = shuffled(all, step.seed, "minillm/prompts", pass = i / all);
    examples.push_back(order[static_cast<size_t>(i % all)]);
  }
  return examples;
}

Tensor tempered_logps(Rows rows, const Tensor& labels, double temperature) {
  rows.temperature *= temperature;
  return label_logps(rows, labels.reshape(-1)).reshape(labels.sizes()).to(at::kDouble);
}

/// Scores responses under both models and keeps what the loss will need of them. Gives back their mean reverse KL estimate.
double score(DistillationStep& step, std::vector<Response>& responses, const MinillmOptions& o) {
  const at::NoGradGuard no_grad;
  size_t next = 0;
  double estimate = 0;
  step.run.each_batch(responses, [&](const DistillationBatch& b) {
    const Tensor labels = at::where(b.mask, b.labels, 0);
    const Tensor q = tempered_logps(b.student, labels, o.temperature),
                 p = tempered_logps(b.teacher, labels, o.temperature);
    const auto sampler = b.numbers.find("sampler_logps");
    const MinillmRewards r =
        minillm_rewards(p, q, b.mask, o, sampler == b.numbers.end() ? Tensor() : sampler->second.to(at::kDouble));
    estimate += r.reverse_kl_estimate.sum().item<double>();
    for (int64_t row = 0; row < b.mask.size(0); ++row, ++next) {
      Response& response = responses[next];
      for (const auto& [name, values] : {std::pair{"old_logps", q}, {"rewards", r.rewards}, {"weights", r.weights}}) {
        const Tensor of_row = values[row].masked_select(b.mask[row]).contiguous();
        response.numbers[name].assign(of_row.const_data_ptr<double>(),
                                      of_row.const_data_ptr<double>() + of_row.numel());
      }
    }
  });
  return estimate / std::max<double>(1, static_cast<double>(responses.size()));
}

std::vector<Response> new_rollout(DistillationStep& step, int64_t rollout, const MinillmOptions& o) {
  const std::vector<int64_t> examples = rollout_examples(step, rollout, o.num_rollouts);
  std::vector<Response> responses =
      step.run.draw(ResponseSource::both, examples, fmt::format("minillm/rollout {}", rollout));
  score(step, responses, o);
  // How far the student is, is asked of its own responses, unmixed.
  const size_t few = std::min(examples.size(), step.examples.size());
  std::vector<Response> own =
      step.run.draw(ResponseSource::student, std::span(examples).first(few), fmt::format("minillm/own {}", rollout));
  double reward = 0, length = 0;
  for (const Response& r : responses) {
    for (const double token : r.numbers.at("rewards")) reward += token;
    length += static_cast<double>(r.tokens.size());
  }
  const double count = static_cast<double>(responses.size());
  step.state.values["figures"] = {
      {"reward", reward / count}, {"response_length", length / count}, {"reverse_kl_estimate", score(step, own, o)}};
  return responses;
}

/// Advantages of the responses of a whole step, which they are whitened over.
void add_advantages(std::vector<Response>& responses, const MinillmOptions& o) {
  size_t longest = 1;
  for (const Response& r : responses) longest = std::max(longest, r.tokens.size());
  const auto rows = static_cast<int64_t>(responses.size()), length = static_cast<int64_t>(longest);
  Tensor rewards = at::zeros({rows, length}, at::kDouble), mask = at::zeros({rows, length}, at::kBool);
  for (int64_t b = 0; b < rows; ++b) {
    const std::vector<double>& given = responses[static_cast<size_t>(b)].numbers.at("rewards");
    const auto count = static_cast<int64_t>(given.size());
    rewards[b].narrow(0, 0, count).copy_(at::tensor(given, at::kDouble));
    mask[b].narrow(0, 0, count).fill_(true);
  }
  const Tensor advantages = minillm_advantages(rewards, mask, o).contiguous();
  for (int64_t b = 0; b < rows; ++b) {
    Response& r = responses[static_cast<size_t>(b)];
    const double* row = advantages.const_data_ptr<double>() + b * length;
    r.numbers["advantages"].assign(row, row + r.numbers.at("rewards").size());
  }
}

}  // namespace

std::vector<Response> minillm_responses(DistillationStep& step, const MinillmOptions& o) {
  const auto size = static_cast<int64_t>(step.examples.size());
  const int64_t a_pass = (o.num_rollouts + size - 1) / size;  // steps; the last begins again where too few are left
  const int64_t rollout = step.step / (a_pass * o.ppo_epochs), within = step.step % (a_pass * o.ppo_epochs);
  std::vector<Response> all;
  if (within == 0) {
    all = new_rollout(step, rollout, o);
    store_responses(step.state, "rollout", all);
  } else {
    all = stored_responses(step.state, "rollout");
  }
  const std::vector<int64_t> order = shuffled(o.num_rollouts, step.seed, "minillm/passes", step.step / a_pass);
  std::vector<Response> chosen;
  const int64_t begin = within % a_pass * size;
  for (int64_t i = begin; i < begin + size; ++i)
    chosen.push_back(all[static_cast<size_t>(order[static_cast<size_t>(i % o.num_rollouts)])]);
  add_advantages(chosen, o);
  return chosen;
}

void minillm_figures(DistillationStep& step, Figures& figures, const MinillmOptions&) {
  if (!step.state.values.contains("figures")) return;
  for (const auto& [name, value] : step.state.values["figures"].items()) figures[name] = {value.get<double>(), 1};
  step.state.values.erase("figures");
}

}  // namespace kullback
