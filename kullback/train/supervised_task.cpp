#include "kullback/train/supervised_task.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/base/log.h"
#include "kullback/train/processes.h"

namespace kullback {

using at::Tensor;

namespace {

std::vector<const Sequence*> sequences(const std::vector<Example>& all, std::span<const int64_t> chosen) {
  std::vector<const Sequence*> result;
  for (const int64_t i : chosen) result.push_back(&all[static_cast<size_t>(i)].sequence);
  return result;
}

/// Each counted token's weight: that of its row. [M]
Tensor token_weights(const std::vector<Example>& all, std::span<const int64_t> chosen, const Tensor& like) {
  std::vector<double> weights;
  for (const int64_t i : chosen) {
    const Example& example = all[static_cast<size_t>(i)];
    weights.insert(weights.end(), static_cast<size_t>(example.sequence.counted()), example.weight);
  }
  return at::tensor(weights, at::kDouble).to(like.scalar_type());
}

}  // namespace

SupervisedTask::SupervisedTask(const Transformer& policy, Reference reference, SupervisedData training,
                               SupervisedData held_out, Limits limits)
    : policy_(policy),
      reference_(reference),
      training_(std::move(training)),
      held_out_(std::move(held_out)),
      limits_(std::move(limits)) {}

std::string SupervisedTask::describe(std::span<const int64_t> examples) const {
  std::vector<int64_t> lines;
  for (const int64_t i : examples) lines.push_back(training_.examples[static_cast<size_t>(i)].line);
  return described_lines(std::move(lines), training_.path);
}

Figures SupervisedTask::accumulate(std::span<const int64_t> batch, std::span<const int64_t> whole, bool measure) {
  const ResponseBatch laid = response_batch(sequences(training_.examples, batch));
  tokens_ += laid.tokens.ids.numel();
  if (laid.labels.numel() == 0) {
    warn(fmt::format("{}: no token to count; the batch is skipped", describe(batch)));
    return {{"loss", {}}, {"skipped_rows", {static_cast<double>(batch.size()), 1}}};
  }
  double tokens = 0, weighted = 0;  // of the whole step
  for (const int64_t i : whole) {
    const Example& example = training_.examples[static_cast<size_t>(i)];
    tokens += static_cast<double>(example.sequence.counted());
    weighted += example.weight * static_cast<double>(example.sequence.counted());
  }
  const Rows policy = policy_.head_rows(response_hidden(policy_, laid));
  const bool compared = !limits_.empty() || measure;
  const Rows reference = compared ? reference_rows(reference_, laid) : Rows{};

  // Every token's weight is known before the head is walked: likelihood and limits cost one walk together.
  const HeadRequest wanted{.labels = laid.labels, .logps = true, .scores = {}, .divergences = limits_.divergences()};
  const Tensor row_weights = token_weights(training_.examples, batch, policy.hidden);
  HeadStatistics upstream;
  upstream.logps = row_weights / -std::max(weighted, 1e-300);
  for (const double weight : limits_.weights(tokens, static_cast<double>(whole.size()))) {
    upstream.divergences.push_back(at::full_like(upstream.logps, weight));
  }
  const HeadLoss loss =
      limits_.empty() ? head_loss(policy, wanted, upstream) : head_loss(policy, reference, wanted, upstream);
  const double value = loss.loss.item<double>();
  if (std::isfinite(value)) loss.loss.backward();  // else the loop stops, and weights must stay as they are

  Figures figures;
  figures["loss"] = {-(loss.statistics.logps * row_weights).sum().item<double>(), row_weights.sum().item<double>()};
  if (!std::isfinite(value)) figures["loss"] = {value, 1};
  add_limit_figures(limits_, loss.statistics.divergences, static_cast<double>(batch.size()), figures);
  if (measure) {
    const std::vector<Tensor> distances = exact_distances(policy, reference);
    for (size_t i = 0; i < distances.size(); ++i) figures[distance_names()[i]] = total(distances[i]);
  }
  return figures;
}

std::vector<Figures> SupervisedTask::evaluate(const std::function<void(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  std::vector<Figures> rows;
  Figures limited;
  const std::vector<Example>& all = held_out_.examples;
  const auto [first, last] = processes().share(std::ssize(all));
  for (int64_t index = first; index < last; ++index) {
    const ResponseBatch laid = response_batch(sequences(all, {&index, 1}));
    if (laid.labels.numel() == 0) continue;
    const Rows policy = policy_.head_rows(response_hidden(policy_, laid)), reference = reference_rows(reference_, laid);
    const HeadRequest wanted{
        .labels = laid.labels, .logps = true, .scores = {}, .top_k = 1, .divergences = limits_.divergences()};
    const HeadStatistics statistics =
        limits_.empty() ? head_statistics(policy, wanted) : head_statistics(policy, reference, wanted);
    Figures row;
    row["loss"] = total(-statistics.logps);
    row["top_1"] = total((statistics.top_ids.flatten() == laid.labels).to(at::kDouble));
    add_distances(exact_distances(policy, reference), row);
    add_limit_figures(limits_, statistics.divergences, 1, limited);
    rows.push_back(std::move(row));
    progress(index + 1 - first, last - first);
  }
  rows = processes().joined(rows);
  if (!rows.empty()) limits_.observe_held_out(processes().sum(limited));
  return rows;
}

}  // namespace kullback
