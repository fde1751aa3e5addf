#include "kullback/distill/distillm_schedule.h"

#include <algorithm>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/train/rollouts.h"

namespace kullback {

using Replay = DistillmOptions::Replay;
using Action = DistillmAction;

void AdaptiveThreshold::observe(double loss, const DistillmOptions& o) {
  if (loss < previous + o.loss_eps) return;
  threshold = std::min(threshold + o.threshold_step, 1.0);
  previous = loss;
}

double fresh_probability(double threshold, int64_t step, int64_t steps, const DistillmOptions& o) {
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  switch (o.replay_ratio) {
    case Replay::decreasing: return threshold * (1 - done);
    case Replay::constant: return 0.5 * threshold;
    case Replay::increasing: return threshold * done;
  }
  return 0;
}

Action distillm_action(double r, double threshold, int64_t step, int64_t steps, int64_t buffered,
                       const DistillmOptions& o) {
  if (r < fresh_probability(threshold, step, steps, o) || (r < threshold && buffered < o.capacity)) {
    return Action::fresh;
  }
  return r < threshold ? Action::replay : Action::data;
}

namespace {

AdaptiveThreshold threshold_of(const DistillationState& state, const DistillmOptions& o) {
  return {.threshold = state.values.value("threshold", o.init_threshold),
          .previous = state.values.value("previous", INFINITY)};
}

/// `count` of the buffer, drawn without replacement.
std::vector<Response> replayed(const std::vector<Response>& buffer, size_t count, RandomStream& random) {
  std::vector<Response> drawn = buffer;
  random.shuffle(drawn);
  drawn.resize(std::min(count, drawn.size()));
  return drawn;
}

}  // namespace

std::vector<Response> distillm_responses(DistillationStep& step, const DistillmOptions& o) {
  RandomStream random(step.seed, "distillm", static_cast<uint64_t>(step.step));
  const auto count = static_cast<int64_t>(step.examples.size());
  if (o.capacity < count) fail("option --capacity: {} is below the {} examples of a step", o.capacity, count);
  std::vector<Response> buffer = stored_responses(step.state, "buffer");
  const Action action = distillm_action(random.uniform(), threshold_of(step.state, o).threshold, step.step + 1,
                                        step.steps, std::ssize(buffer), o);
  step.state.values["action"] = static_cast<int>(action);
  if (action == Action::data) return step.run.data(step.examples);
  if (action == Action::replay) return replayed(buffer, step.examples.size(), random);
  const std::vector<Response> fresh =
      step.run.draw(ResponseSource::student, step.examples, fmt::format("distillm/{}", step.step));
  buffer.insert(buffer.end(), fresh.begin(), fresh.end());
  if (std::ssize(buffer) > o.capacity) buffer.erase(buffer.begin(), buffer.end() - o.capacity);
  store_responses(step.state, "buffer", buffer);
  return fresh;
}

void distillm_figures(DistillationStep& step, Figures& figures, const DistillmOptions& o) {
  const auto action = static_cast<Action>(step.state.values.value("action", 0));
  figures["threshold"] = {threshold_of(step.state, o).threshold, 1};
  figures["fresh"] = {action == Action::fresh ? 1.0 : 0.0, 1};
  figures["replayed"] = {action == Action::replay ? 1.0 : 0.0, 1};
}

void distillm_observe(DistillationStep& step, double loss, const DistillmOptions& o) {
  AdaptiveThreshold now = threshold_of(step.state, o);
  if (std::isinf(now.previous)) {
    now.previous = loss;
  } else {
    now.observe(loss, o);
  }
  step.state.values["threshold"] = now.threshold;
  step.state.values["previous"] = now.previous;
}

}  // namespace kullback
