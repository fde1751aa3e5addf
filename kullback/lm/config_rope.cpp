// How fast each pair of a head turns.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kullback/lm/config.h"

namespace kullback {
namespace {

// The wavelength correction of Llama 3.1: pairs that turn fewer than `low_frequency` times over the original context
// are slowed by `factor`, those that turn more than `high_frequency` times are kept.
double llama3_frequency(const Rope& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_positions) * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - rope.low_frequency) / (rope.high_frequency - rope.low_frequency), 0.0, 1.0);
  return frequency * (kept + (1 - kept) / rope.factor);
}

// The (fractional) pair that turns `turns` times over the original context.
double yarn_pair(const Rope& rope, int64_t head_size, double turns) {
  return static_cast<double>(head_size) *
         std::log(static_cast<double>(rope.original_positions) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

void yarn_frequencies(const Rope& rope, int64_t head_size, std::vector<double>& frequencies) {
  double first = yarn_pair(rope, head_size, rope.beta_fast), last = yarn_pair(rope, head_size, rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(head_size - 1));
  if (first == last) last += 0.001;  // the paper's ramp is a step then
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double slowed = std::clamp((static_cast<double>(j) - first) / (last - first), 0.0, 1.0);
    frequencies[j] *= slowed / rope.factor + (1 - slowed);
  }
}

}  // namespace

std::vector<double> rope_frequencies(const Rope& rope, int64_t size, int64_t context) {
  double theta = rope.theta;
  if (rope.scaling == Rope::Scaling::dynamic) {
    const double grown =
        static_cast<double>(std::max(context, rope.original_positions)) / static_cast<double>(rope.original_positions);
    theta *=
        std::pow(rope.factor * grown - (rope.factor - 1), static_cast<double>(size) / static_cast<double>(size - 2));
  }
  std::vector<double> frequencies(static_cast<size_t>(size / 2));
  for (size_t j = 0; j < frequencies.size(); ++j) {
    frequencies[j] = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(size));
  }
  switch (rope.scaling) {
    case Rope::Scaling::none:
    case Rope::Scaling::dynamic: break;
    case Rope::Scaling::linear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case Rope::Scaling::llama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(rope, frequency);
      break;
    case Rope::Scaling::yarn: yarn_frequencies(rope, size, frequencies); break;
    case Rope::Scaling::longrope: {
      const std::vector<double>& divisors = context > rope.original_positions ? rope.long_factors : rope.short_factors;
      for (size_t j = 0; j < frequencies.size(); ++j) frequencies[j] /= divisors[j];
      break;
    }
  }
  return frequencies;
}

double rope_magnitude(const Rope& rope) {
  const bool longrope = rope.scaling == Rope::Scaling::longrope;
  if (rope.scaling != Rope::Scaling::yarn && !longrope) return 1;
  if (rope.magnitude > 0) return rope.magnitude;
  if (rope.factor <= 1) return 1;
  return longrope ? std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_positions)))
                  : 0.1 * std::log(rope.factor) + 1;
}

}  // namespace kullback
