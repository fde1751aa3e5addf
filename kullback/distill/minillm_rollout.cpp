#include "kullback/distill/minillm_rollout.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/divergence/head.h"
#include "kullback/train/rollouts.h"

namespace kullback {
namespace {

using at::Tensor;

Rollouts rollouts_of(const MinillmOptions& o) {
  return {.name = "minillm", .size = o.num_rollouts, .passes = o.ppo_epochs};
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
    const auto these = std::span(responses).subspan(next, static_cast<size_t>(b.mask.size(0)));
    for (const auto& [name, values] : {std::pair{"old_logps", q}, {"rewards", r.rewards}, {"weights", r.weights}})
      keep_numbers(these, name, values);
    next += these.size();
  });
  return estimate / std::max<double>(1, static_cast<double>(responses.size()));
}

std::vector<Response> new_rollout(DistillationStep& step, int64_t rollout, const MinillmOptions& o) {
  const std::vector<int64_t> examples = rollout_examples(rollouts_of(o), step, rollout);
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

}  // namespace

std::vector<Response> minillm_responses(DistillationStep& step, const MinillmOptions& o) {
  std::vector<Response> chosen =
      rollout_responses(rollouts_of(o), step, [&](int64_t rollout) { return new_rollout(step, rollout, o); });
  // Of the responses of a whole step, which advantages are whitened over.
  keep_numbers(chosen, "advantages", minillm_advantages(padded_numbers(chosen, "rewards"), padded_mask(chosen), o));
  return chosen;
}

void minillm_figures(DistillationStep& step, Figures& figures, const MinillmOptions&) {
  add_rollout_figures(step, figures);
}

}  // namespace kullback
