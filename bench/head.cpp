// The streaming head beside plain tensor operations, token chunks, and the matrix products alone (the limit): forward and
// backward, time and peak extra memory, in one process.
//
//   build/bench/head                      all shapes, statistics and ways, by Google Benchmark
//   build/bench/head --summary            one JSON line of ratios for the first shape; --shapes all for every shape
//   build/bench/head --rows               the row kernels alone, as parts of the bandwidth of a copy

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <nlohmann/json.hpp>

#include "kullback/divergence/definition.h"
#include "kullback/divergence/head.h"
#include "kullback/divergence/row_kernels.h"

namespace {

using at::Tensor;
using namespace kullback;

struct Shape {
  int64_t tokens, width, vocabulary;
  std::string name() const { return fmt::format("{}x{}x{}", tokens, width, vocabulary); }
};
const std::vector<Shape> kShapes = {{512, 576, 49152}, {256, 2048, 128256}, {2048, 64, 1024}};
const std::vector<std::string> kStatistics = {"logp", "kl", "reverse-kl", "js", "alpha:0.5", "tv", "entropy"};

/// Student and teacher, labels, and the gradients' places.
struct Work {
  Tensor hidden, weight, teacher_hidden, teacher_weight, labels;

  explicit Work(const Shape& s) {
    at::manual_seed(0);
    const double scale = 1 / std::sqrt(static_cast<double>(s.width));
    hidden = at::randn({s.tokens, s.width}).requires_grad_(true);
    weight = (at::randn({s.vocabulary, s.width}) * scale).requires_grad_(true);
    teacher_hidden = at::randn({s.tokens, s.width});
    teacher_weight = at::randn({s.vocabulary, s.width}) * scale;
    labels = at::randint(s.vocabulary, {s.tokens}, at::kLong);
  }
  void clear() {
    hidden.mutable_grad() = Tensor();
    weight.mutable_grad() = Tensor();
  }
};

bool two_heads(const std::string& statistic) { return statistic != "logp" && statistic != "entropy"; }

HeadRequest request_of(const std::string& statistic, const Work& w) {
  HeadRequest request;
  if (statistic == "logp") {
    request.labels = w.labels;
    request.logps = true;
  } else if (statistic == "entropy") {
    request.entropy = true;
  } else {
    request.divergences = {divergence(statistic).from_reference()};
  }
  return request;
}

Rows student(const Work& w) {
  Rows rows;
  rows.hidden = w.hidden;
  rows.weight = w.weight;
  return rows;
}

Rows teacher(const Work& w) {
  Rows rows;
  rows.hidden = w.teacher_hidden;
  rows.weight = w.teacher_weight;
  return rows;
}

void ours_known(const std::string& statistic, const Work& w) {
  const HeadRequest request = request_of(statistic, w);
  HeadStatistics weights;
  const Tensor ones = at::ones({w.hidden.size(0)}, at::kDouble);
  if (statistic == "logp")
    weights.logps = -ones;
  else if (statistic == "entropy")
    weights.entropy = ones;
  else
    weights.divergences = {ones};
  (two_heads(statistic) ? head_loss(student(w), teacher(w), request, weights) : head_loss(student(w), request, weights))
      .loss.backward();
}

/// A loss that is known only after the statistics.
void ours_unknown(const std::string& statistic, const Work& w) {
  const HeadRequest request = request_of(statistic, w);
  const HeadStatistics s =
      two_heads(statistic) ? head_statistics(student(w), teacher(w), request) : head_statistics(student(w), request);
  const Tensor values = statistic == "logp" ? s.logps : statistic == "entropy" ? s.entropy : s.divergences[0];
  at::log_sigmoid(values).sum().backward();
}

void ours_frozen(const std::string& statistic, Work& w) {
  w.weight.requires_grad_(false);
  ours_unknown(statistic, w);
  w.weight.requires_grad_(true);
}

Tensor plain_loss(const std::string& statistic, const Tensor& z, const Tensor& a, const Tensor& labels) {
  const Tensor lq = at::log_softmax(z, 1);
  if (statistic == "logp") return -lq.gather(1, labels.unsqueeze(1)).sum();
  if (statistic == "entropy") return -(lq.exp() * lq).sum();
  const Tensor lp = at::log_softmax(a, 1);
  constexpr auto sum = at::Reduction::Sum;
  if (statistic == "kl") return at::kl_div(lq, lp, sum, true);
  if (statistic == "reverse-kl") return at::kl_div(lp, lq, sum, true);
  if (statistic == "js") {
    const Tensor lm = at::logsumexp(at::stack({lq, lp}), 0) - std::log(2.0);
    return 0.5 * at::kl_div(lm, lp, sum, true) + 0.5 * at::kl_div(lm, lq, sum, true);
  }
  if (statistic == "alpha:0.5") return 4 * (z.size(0) - (0.5 * (lp + lq)).exp().sum());
  return 0.5 * (lp.exp() - lq.exp()).abs().sum();
}

void plain(const std::string& statistic, const Work& w) {
  const Tensor z = at::matmul(w.hidden, w.weight.t());
  const Tensor a = two_heads(statistic) ? at::matmul(w.teacher_hidden, w.teacher_weight.t()) : Tensor();
  plain_loss(statistic, z, a, w.labels).backward();
}

/// Blocks of tokens through plain operations, the gradient made block by block.
void chunked(const std::string& statistic, const Work& w) {
  constexpr int64_t block = 128;
  const Tensor hidden = w.hidden.detach(), weight = w.weight.detach();
  Tensor hidden_gradient = at::empty_like(hidden), weight_gradient = at::zeros_like(weight);
  for (int64_t first = 0; first < hidden.size(0); first += block) {
    const int64_t count = std::min(block, hidden.size(0) - first);
    const Tensor h = hidden.narrow(0, first, count);
    const Tensor z = at::matmul(h, weight.t()).requires_grad_(true);
    const Tensor a =
        two_heads(statistic) ? at::matmul(w.teacher_hidden.narrow(0, first, count), w.teacher_weight.t()) : Tensor();
    const Tensor g = torch::autograd::grad({plain_loss(statistic, z, a, w.labels.narrow(0, first, count))}, {z})[0];
    hidden_gradient.narrow(0, first, count).copy_(at::matmul(g, weight));
    weight_gradient.addmm_(g.t(), h);
  }
  const_cast<Tensor&>(w.hidden).mutable_grad() = hidden_gradient;
  const_cast<Tensor&>(w.weight).mutable_grad() = weight_gradient;
}

/// The products alone, in blocks of so many tokens.
void products(const Work& w, bool two, int64_t block, Tensor& space) {
  const at::NoGradGuard no_gradient;
  Tensor hidden_gradient = at::empty_like(w.hidden), weight_gradient = at::empty_like(w.weight);
  for (int64_t first = 0; first < w.hidden.size(0); first += block) {
    const int64_t count = std::min(block, w.hidden.size(0) - first);
    const Tensor h = w.hidden.narrow(0, first, count);
    Tensor z = space.narrow(0, 0, count);
    if (two) at::mm_out(z, w.teacher_hidden.narrow(0, first, count), w.teacher_weight.t());
    at::mm_out(z, h, w.weight.t());
    Tensor part = hidden_gradient.narrow(0, first, count);
    at::mm_out(part, z, w.weight);
    if (first == 0)
      at::mm_out(weight_gradient, z.t(), h);
    else
      weight_gradient.addmm_(z.t(), h);
  }
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

/// Counts what tensors hold. What MKL packs inside a product is not in it, for ours and rivals alike.
struct CountingAllocator : c10::Allocator {
  c10::Allocator* base = c10::GetDefaultCPUAllocator();
  std::atomic<int64_t> held{0}, peak{0};

  struct Block {
    c10::DataPtr memory;
    int64_t bytes;
    CountingAllocator* owner;
  };
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{base->allocate(bytes), static_cast<int64_t>(bytes), this};
    const int64_t now = held += block->bytes;
    for (int64_t known = peak; known < now && !peak.compare_exchange_weak(known, now);) {
    }
    return {block->memory.get(), block, &release, block->memory.device()};
  }
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->held -= block->bytes;
    delete block;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

CountingAllocator& memory() {
  static CountingAllocator counting;
  return counting;
}

/// Peak memory of a run beyond what was held before and beyond the gradients it leaves, in MiB.
double extra_mib(const Work& w, const std::function<void()>& run) {
  const int64_t before = memory().held;
  memory().peak = before;
  run();
  int64_t left = 0;
  for (const Tensor* t : {&w.hidden, &w.weight}) {
    if (t->grad().defined()) left += static_cast<int64_t>(t->grad().nbytes());
  }
  return static_cast<double>(memory().peak - before - left) / (1 << 20);
}

struct Limit {
  double three = 0, four = 0;  // seconds: the student's products, and with the teacher's
};

/// Rounds of every way in turn, so that a noisy machine is noisy to all.
nlohmann::ordered_json summary_of(const Shape& shape) {
  Work w(shape);
  const bool small = shape.tokens * shape.width * shape.vocabulary < (int64_t{1} << 30);
  const int rounds = small ? 15 : 3;
  const std::vector<int64_t> blocks =
      small ? std::vector<int64_t>{256, 512, 2048} : std::vector<int64_t>{shape.tokens / 2, shape.tokens};
  Tensor space = at::empty({shape.tokens, shape.vocabulary});
  const auto limit = [&](bool two) {
    double best = 1e9;
    for (const int64_t block : blocks) best = std::min(best, seconds([&] { products(w, two, block, space); }));
    return best;
  };
  limit(true);  // warm

  nlohmann::ordered_json out;
  const auto measure = [&](const std::string& name, const std::string& statistic, const std::function<void()>& ours,
                           bool rivals) {
    const bool two = two_heads(statistic);
    std::vector<double> our_time, limit_time, plain_time, chunked_time;
    const double memory = extra_mib(w, ours);
    w.clear();
    for (int round = 0; round < rounds; ++round) {
      limit_time.push_back(limit(two));
      our_time.push_back(seconds(ours));
      w.clear();
      if (!rivals || (round > 0 && !small)) continue;
      plain_time.push_back(seconds([&] { plain(statistic, w); }));
      w.clear();
      chunked_time.push_back(seconds([&] { chunked(statistic, w); }));
      w.clear();
    }
    const auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
    auto& entry = out[name];
    entry["seconds"] = rounded(median(our_time));
    entry["to_limit"] = rounded(median(our_time) / median(limit_time));
    if (rivals) {
      entry["to_plain"] = rounded(median(our_time) / median(plain_time));
      entry["to_chunked"] = rounded(median(our_time) / median(chunked_time));
    }
    entry["extra_mib"] = std::round(memory);
  };
  for (const std::string& statistic : kStatistics)
    measure(
        statistic, statistic, [&] { ours_known(statistic, w); }, true);
  for (const std::string statistic : {"logp", "kl"}) {
    measure(
        statistic + ", weights unknown", statistic, [&] { ours_unknown(statistic, w); }, false);
    measure(
        statistic + ", weights unknown, head frozen", statistic, [&] { ours_frozen(statistic, w); }, false);
  }
  return out;
}

/// The row kernels on one core, as parts of the bandwidth of a copy of the same rows.
nlohmann::ordered_json rows_alone() {
  constexpr int64_t rows = 256, size = 49152;
  const Tensor z = at::randn({rows, size}), a = at::randn({rows, size});
  Tensor out = at::empty({rows, size});
  at::set_num_threads(1);
  const double bytes = static_cast<double>(z.nbytes());
  std::vector<double> copy, law, kl;
  const kullback::detail::Term term = *divergence("kl").definition().from_reference;
  for (int round = 0; round < 7; ++round) {
    copy.push_back(2 * bytes / seconds([&] { out.copy_(z); }));
    out.copy_(z);
    law.push_back(bytes / seconds([&] {
                    for (int64_t r = 0; r < rows; ++r) {
                      kullback::detail::law_kernels<float>().summarise(out.data_ptr<float>() + r * size, size, {},
                                                                       false, nullptr);
                    }
                  }));
    kl.push_back(3 * bytes / seconds([&] {
                   for (int64_t r = 0; r < rows; ++r) {
                     const float* policy = z.const_data_ptr<float>() + r * size;
                     const float* reference = a.const_data_ptr<float>() + r * size;
                     const auto law_of = [&](const float* row) {
                       return kullback::detail::law_kernels<float>()
                           .summarise(const_cast<float*>(row), size, {}, false, nullptr)
                           .normaliser;
                     };
                     const kullback::detail::RowPair<float> pair{policy, reference, law_of(policy), law_of(reference)};
                     kullback::detail::term_kernels<float>().gradient(term, pair, 0, size, 1, 0, false,
                                                                      out.data_ptr<float>() + r * size);
                   }
                 }));
  }
  const auto gb = [](double x) { return std::round(x / 1e7) / 100; };
  return {{"target", kullback::detail::kernel_target()},
          {"copy_gb_s", gb(median(copy))},
          {"logsumexp_gb_s", gb(median(law))},
          {"logsumexp_to_copy", std::round(100 * median(law) / median(copy)) / 100},
          {"kl_with_gradient_gb_s", gb(median(kl))},
          {"kl_with_gradient_to_copy", std::round(100 * median(kl) / median(copy)) / 100}};
}

void register_benchmarks() {
  static std::map<std::string, std::unique_ptr<Work>> works;
  const auto work = [](const Shape& s) -> Work& {
    auto& slot = works[s.name()];
    if (!slot) {
      works.clear();  // one shape is held at a time
      return *(works[s.name()] = std::make_unique<Work>(s));
    }
    return *slot;
  };
  const auto add = [&](const Shape& shape, const std::string& statistic, const std::string& way, auto run) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", shape.name(), statistic, way).c_str(),
                                 [=](benchmark::State& state) {
                                   Work& w = work(shape);
                                   state.counters["extra_MiB"] = extra_mib(w, [&] { run(w); });
                                   for (auto _ : state) {
                                     w.clear();
                                     run(w);
                                   }
                                   w.clear();
                                 })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  for (const Shape& shape : kShapes) {
    for (const std::string& statistic : kStatistics) {
      add(shape, statistic, "ours", [=](Work& w) { ours_known(statistic, w); });
      add(shape, statistic, "ours, weights unknown", [=](Work& w) { ours_unknown(statistic, w); });
      add(shape, statistic, "ours, weights unknown, head frozen", [=](Work& w) { ours_frozen(statistic, w); });
      add(shape, statistic, "plain", [=](Work& w) { plain(statistic, w); });
      add(shape, statistic, "chunked", [=](Work& w) { chunked(statistic, w); });
    }
    for (const bool two : {false, true}) {
      for (const int64_t block : {64, 128, 256, 512}) {
        add(shape, two ? "four products" : "three products", fmt::format("blocks of {}", block), [=](Work& w) {
          Tensor space = at::empty({std::min(block, shape.tokens), shape.vocabulary});
          products(w, two, block, space);
        });
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  c10::SetCPUAllocator(&memory(), 100);
  bool summary = false, rows = false, all = false;
  for (int i = 1; i < count; ++i) {
    summary = summary || std::strcmp(words[i], "--summary") == 0;
    rows = rows || std::strcmp(words[i], "--rows") == 0;
    all = all || (std::strcmp(words[i], "--shapes") == 0 && i + 1 < count && std::strcmp(words[i + 1], "all") == 0);
  }
  if (rows) std::cout << rows_alone().dump() << "\n";
  if (summary) {
    nlohmann::ordered_json out;
    for (const Shape& shape : kShapes) {
      if (out.empty() || all) out[shape.name()] = summary_of(shape);
    }
    std::cout << out.dump() << "\n";
  }
  if (rows || summary) return 0;
  register_benchmarks();
  benchmark::Initialize(&count, words);
  benchmark::RunSpecifiedBenchmarks();
}
