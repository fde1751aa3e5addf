// A transformer of SmolLM2-135M's shape beside its own matrix products alone (the limit): training steps of 4 x 256
// tokens with all weights and with adapters, reading a prompt, and decoding one or sixteen sequences. Random weights:
// nothing to download.
//
//   build/bench/transformer               tokens a second, and what part of the limit that is
//
// Rounds of the contestants alternate and the best of each counts, so that a busy machine slows both.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/smollm2_shape.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/score.h"
#include "kullback/lm/transformer.h"

namespace {

using at::Tensor;
using namespace kullback;

Ragged random_batch(const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  Ragged batch;
  batch.ids = at::randint(49152, {tokens}, at::kLong);
  batch.lengths = lengths;
  return batch;
}

/// Mean negative log-probability of the next tokens, with its gradients.
void train(const Transformer& model, const Ragged& batch) {
  const Tensor labels = next_tokens(batch);
  HeadRequest request;
  request.labels = labels;
  request.logps = true;
  HeadStatistics weights;
  weights.logps = at::full({labels.size(0)}, -1.0 / static_cast<double>(labels.size(0)));
  torch::autograd::backward({head_loss(model.head_rows(model.hidden(batch)), request, weights).loss}, {});
  for (NamedTensor& named : model.trainable()) named.tensor.mutable_grad() = Tensor();
}

/// All matrix products of one pass over `tokens` rows: forward, and backward with or without gradients of the weights.
void products(const Transformer& model, int64_t tokens, bool backward, bool weights) {
  const at::NoGradGuard no_grad;
  const auto product = [&](const Tensor& weight) {
    const Tensor x = at::ones({tokens, weight.size(1)});
    const Tensor y = at::linear(x, weight);
    if (backward) at::mm(y, weight);
    if (backward && weights) at::mm(y.t(), x);
  };
  for (const Layer& layer : model.layers) {
    for (const NamedLinear& named : layer_linears()) product((layer.*named.linear).weight);
  }
  for (int64_t i = 0; i < tokens; i += 128) {  // the head goes block by block: nobody holds all of its rows
    const int64_t rows = std::min<int64_t>(128, tokens - i);
    const Tensor x = at::ones({rows, model.head.size(1)});
    const Tensor y = at::linear(x, model.head);
    if (backward) at::mm(y, model.head);
    if (backward && weights) at::mm(y.t(), x);
  }
}

void decode(const Transformer& model, std::vector<KvCache>& caches) {
  const at::NoGradGuard no_grad;
  Ragged batch = random_batch(std::vector<int64_t>(caches.size(), 1));
  for (KvCache& cache : caches) batch.caches.push_back(&cache);
  model.logits(model.hidden(batch));
}

struct Seconds {
  double wall = std::numeric_limits<double>::infinity(), processor = wall;
};

Seconds time(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t used = std::clock();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC};
}

void contest(const std::string& name, int64_t tokens, int rounds, const std::function<void()>& ours,
             const std::function<void()>& limit) {
  ours();
  limit();
  Seconds best, least;
  for (int round = 0; round < rounds; ++round) {
    for (auto& [work, seconds] : {std::pair(&ours, &best), std::pair(&limit, &least)}) {
      const Seconds now = time(*work);
      seconds->wall = std::min(seconds->wall, now.wall);
      seconds->processor = std::min(seconds->processor, now.processor);
    }
  }
  std::printf(
      "%-34s %8.1f tokens/s (%.2f processor seconds)   matrix products alone %8.1f (%.2f)   part of the limit %.2f "
      "(%.2f)\n",
      name.c_str(), static_cast<double>(tokens) / best.wall, best.processor, static_cast<double>(tokens) / least.wall,
      least.processor, least.wall / best.wall, least.processor / best.processor);
  std::fflush(stdout);
}

}  // namespace

int main(int arguments, char** argument) {
  const int rounds = arguments > 1 ? std::atoi(argument[1]) : 3;
  Transformer model = bench::random_model();
  const Ragged batch = random_batch({256, 256, 256, 256});

  model.set_trainable(true);
  contest(
      "train all weights, 4 x 256", 1024, rounds, [&] { train(model, batch); },
      [&] { products(model, 1024, true, true); });
  Transformer adapted = model;
  add_lora(adapted, {}, 1);
  contest(
      "train adapters of rank 16, 4 x 256", 1024, rounds, [&] { train(adapted, batch); },
      [&] { products(model, 1024, true, false); });

  model.set_trainable(false);
  const Ragged prompt = random_batch({384});
  contest(
      "read a prompt of 384", 384, rounds,
      [&] {
        const at::NoGradGuard no_grad;
        model.hidden(prompt);
      },
      [&] { products(model, 384, false, false); });
  for (const int64_t sequences : {1, 16}) {
    std::vector<KvCache> caches(static_cast<size_t>(sequences), KvCache(30));
    const int steps = 16;
    contest(
        "decode " + std::to_string(sequences) + " at a time", sequences * steps, rounds,
        [&] {
          for (int i = 0; i < steps; ++i) decode(model, caches);
        },
        [&] {
          for (int i = 0; i < steps; ++i) products(model, sequences, false, false);
        });
  }
}
