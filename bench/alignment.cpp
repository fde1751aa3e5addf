// A whole step of DPO as `kullback align` takes it (data laid out, loss, figures, clipping, optimiser) beside the model, the head
// and the optimiser alone: what everything else costs. SmolLM2-135M's shape with random weights and adapters of rank 16.
//
//   build/bench/alignment                 seconds of both and their ratio, the median of rounds in turn
//   build/bench/alignment 11              of so many rounds

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "bench/smollm2_shape.h"
#include "kullback/base/random.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/lora.h"
#include "kullback/train/preference_task.h"

namespace {

using at::Tensor;
using namespace kullback;

constexpr int64_t kPairs = 2, kLength = 384, kPrompt = 128;

PreferenceData random_pairs() {
  PreferenceData data{.path = "random", .pairs = {}, .counts = {}};
  RandomStream stream(0, "tokens");
  const auto sequence = [&] {
    Sequence s{.ids = {}, .response_begin = kPrompt};
    for (int64_t t = 0; t < kLength; ++t) s.ids.push_back(static_cast<int32_t>(stream.below(49152)));
    return s;
  };
  for (int64_t i = 0; i < kPairs; ++i) {
    PreferencePair pair;
    pair.line = i + 1;
    pair.chosen = sequence();
    pair.rejected = sequence();
    data.pairs.push_back(pair);
  }
  return data;
}

double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 7;
  Transformer policy = bench::random_model();
  add_lora(policy, {}, 1);
  const Reference reference{&policy, AdapterUse::off};
  const Method& method = find_method("dpo");
  const auto options = method.options->defaults();
  const PreferenceData data = random_pairs();
  PreferenceTask task(policy, reference, method, options.get(), data, {}, {});
  const OptimizerOptions settings;
  Optimizer optimizer(policy.trainable(), settings);
  const std::vector<int64_t> rows{0, 1};

  // The reference's log-probabilities are kept by the task after the first step, and so they are no part of either.
  const auto whole = [&] { train_step(task, optimizer, settings, rows, kPairs, 1e-5, false); };
  std::vector<const Sequence*> sequences;
  for (const PreferencePair& pair : data.pairs) sequences.push_back(&pair.chosen), sequences.push_back(&pair.rejected);
  const ResponseBatch batch = response_batch(sequences);
  const auto parts = [&] {
    const HeadRequest request{.labels = batch.labels, .logps = true, .scores = {}, .divergences = {}};
    head_statistics(policy.head_rows(response_hidden(policy, batch)), request).logps.sum().backward();
    optimizer.step(1e-5);
    optimizer.clear_gradients();
  };
  whole(), parts();
  std::vector<double> ratio, ours, alone;
  for (int round = 0; round < rounds; ++round) {
    alone.push_back(seconds(parts));
    ours.push_back(seconds(whole));
    ratio.push_back(ours.back() / alone.back());
  }
  std::printf(
      "dpo step, 2 pairs of 2 x %lld tokens, adapters: %.2f s; model, head and optimiser alone %.2f s; ratio %.3f\n",
      static_cast<long long>(kLength), median(ours), median(alone), median(ratio));
}
