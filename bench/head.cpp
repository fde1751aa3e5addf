// The streaming head beside plain tensor operations, token chunks, and the matrix products alone (the limit): forward and
// backward, time and peak extra memory, in one process.
//
//   build/bench/head                      all shapes, statistics and ways, by Google Benchmark
//   build/bench/head --summary            one JSON line of ratios for the first shape
//   build/bench/head --table FILE         the same for every shape and the row kernels, as a page of the documentation
//     --shapes 512x576x49152,... or all   for these shapes;  --rounds 3: medians of so many
//     --memory 128                        MiB that the head may hold
//   build/bench/head --rows               the row kernels alone, as parts of the bandwidth of a copy

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <nlohmann/json.hpp>

#include "kullback/divergence/counting_allocator_test.h"
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

test::CountingAllocator& memory() {
  static test::CountingAllocator counting;
  return counting;
}

/// Peak memory of a run beyond what was held before and beyond the gradients it leaves, in MiB.
double extra_mib(const Work& w, const std::function<void()>& run) {
  release_head_memory();
  const int64_t before = memory().held;
  memory().peak = before;
  run();
  int64_t left = 0;
  for (const Tensor* t : {&w.hidden, &w.weight}) {
    if (t->grad().defined()) left += static_cast<int64_t>(t->grad().nbytes());
  }
  return static_cast<double>(memory().peak - before - left) / (1 << 20);
}

/// A way to do the work, timed beside the others.
struct Way {
  std::string name;
  std::function<void()> run;
  int rounds;
  std::vector<double> times = {};
  double mib = 0;
};

using Json = nlohmann::ordered_json;

double rounded(double x) { return std::round(x * 1000) / 1000; }

/// The median over rounds of one time over another of the same round, in which the machine was as busy.
double ratio(const std::vector<double>& times, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(times.size(), to.size()); ++i) ratios.push_back(times[i] / to[i]);
  return rounded(median(ratios));
}

/// Every statistic of one shape, in rounds of every way in turn.
Json summary_of(const Shape& shape, int rounds) {
  Work w(shape);
  const bool small = shape.tokens * shape.width * shape.vocabulary < (int64_t{1} << 30);
  if (small) rounds *= 5;
  Tensor space = at::empty({shape.tokens, shape.vocabulary});
  const auto limit_of = [&](bool two, int64_t block) { return seconds([&] { products(w, two, block, space); }); };
  limit_of(true, shape.tokens);  // warm
  int64_t best_block = shape.tokens;
  double best_time = 1e9;
  for (const int64_t block : {shape.tokens, shape.tokens / 2, shape.tokens / 4, shape.tokens / 8}) {
    const double time = std::min(limit_of(true, block), limit_of(true, block));
    if (time < 0.97 * best_time) best_time = time, best_block = block;
  }

  Json out;
  out["products_in_blocks_of"] = best_block;
  for (const std::string& statistic : kStatistics) {
    const bool two = two_heads(statistic);
    std::vector<Way> ways = {{statistic, [&] { ours_known(statistic, w); }, rounds}};
    if (statistic == "logp" || statistic == "kl") {
      ways.push_back({statistic + ", weights unknown", [&] { ours_unknown(statistic, w); }, rounds});
      ways.push_back({statistic + ", weights unknown, head frozen", [&] { ours_frozen(statistic, w); }, rounds});
    }
    const size_t rivals = ways.size();
    const int rival_rounds = small ? rounds : 1;
    ways.push_back({"plain", [&] { plain(statistic, w); }, rival_rounds});
    ways.push_back({"chunked", [&] { chunked(statistic, w); }, rival_rounds});
    for (size_t i = 0; i < rivals; ++i) {  // a run of its own: memory kept from earlier runs would not be seen
      ways[i].mib = extra_mib(w, ways[i].run);
      w.clear();
    }
    std::vector<double> limit;
    for (int round = 0; round < rounds; ++round) {
      limit.push_back(limit_of(two, best_block));
      for (Way& way : ways) {
        const auto timed = [&] { way.times.push_back(seconds(way.run)); };
        if (round == 0 && way.mib == 0)
          way.mib = extra_mib(w, timed);
        else if (round < way.rounds)
          timed();
        w.clear();
      }
    }
    for (size_t i = 0; i < rivals; ++i) {
      Json& entry = out[ways[i].name];
      entry["seconds"] = rounded(median(ways[i].times));
      entry["to_limit"] = ratio(ways[i].times, limit);
      if (i == 0) {
        entry["to_plain"] = ratio(ways[0].times, ways[rivals].times);
        entry["to_chunked"] = ratio(ways[0].times, ways[rivals + 1].times);
      }
      entry["extra_mib"] = std::round(ways[i].mib);
      if (i == 0) {
        entry["plain_mib"] = std::round(ways[rivals].mib);
        entry["chunked_mib"] = std::round(ways[rivals + 1].mib);
      }
    }
  }
  return out;
}

/// The row kernels on one core, as parts of the bandwidth of a copy of the same rows.
Json rows_alone() {
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

/// What /proc says of the processor.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

/// Those of these names, separated by commas, or all.
std::vector<Shape> shapes_named(const std::string& names) {
  std::vector<Shape> shapes;
  for (const Shape& shape : kShapes) {
    const std::string listed = fmt::format(",{},", names), name = fmt::format(",{},", shape.name());
    if (names == "all" || listed.find(name) != std::string::npos) shapes.push_back(shape);
  }
  return shapes;
}

/// The page of the documentation.
void write_table(const std::string& path, const std::vector<Shape>& shapes, int rounds) {
  std::string page =
      "# The head, measured\n\n"
      "Written by `make bench` (`build/bench/head --table FILE`); [The streaming head](head.md) says what is compared. "
      "Forward and backward together, float32. *To the limit* is our time over that of the matrix products alone at "
      "their "
      "best blocking, *to plain* over that of plain tensor operations on all logits at once, *to chunked* over the "
      "same "
      "operations in chunks of 128 tokens, each pair timed in one round in one process; below 1 we are faster. Memory "
      "is "
      "the peak beyond inputs and gradients, in MiB.\n\n";
  page += fmt::format(
      "Machine: {}, {} threads, vector code for {}. Medians of {} rounds; ours with at most {} MiB (`--memory`).\n",
      processor(), at::get_num_threads(), kullback::detail::kernel_target(), rounds, head_memory() >> 20);
  for (const Shape& shape : shapes) {
    const Json summary = summary_of(shape, rounds);
    page += fmt::format(
        "\n## {} tokens, width {}, vocabulary {}\n\nThe products are fastest in blocks of {} tokens.\n\n"
        "| statistic | ms | to the limit | to plain | to chunked | MiB | plain | chunked "
        "|\n|---|---|---|---|---|---|---|---|\n",
        shape.tokens, shape.width, shape.vocabulary, summary["products_in_blocks_of"].get<int64_t>());
    for (const auto& [name, entry] : summary.items()) {
      if (!entry.is_object()) continue;
      const auto cell = [&entry = entry](const char* key, int digits) {
        return entry.contains(key) ? fmt::format("{:.{}f}", entry[key].get<double>(), digits) : std::string();
      };
      page += fmt::format("| {} | {:.0f} | {} | {} | {} | {} | {} | {} |\n", name,
                          1000 * entry["seconds"].get<double>(), cell("to_limit", 2), cell("to_plain", 2),
                          cell("to_chunked", 2), cell("extra_mib", 0), cell("plain_mib", 0), cell("chunked_mib", 0));
    }
  }
  const Json rows = rows_alone();
  page += fmt::format(
      "\n## The row kernels alone\n\nOne thread, rows of 49152 float32, bytes touched over time: a copy makes {} GB/s, "
      "logsumexp {} GB/s ({} of it), the two laws and the gradient of kl {} GB/s ({} of it).\n",
      rows["copy_gb_s"].dump(), rows["logsumexp_gb_s"].dump(), rows["logsumexp_to_copy"].dump(),
      rows["kl_with_gradient_gb_s"].dump(), rows["kl_with_gradient_to_copy"].dump());
  std::ofstream(path) << page;
}

}  // namespace

int main(int count, char** words) {
  c10::SetCPUAllocator(&memory(), 100);
  const std::vector<std::string> arguments(words + 1, words + count);
  const auto has = [&](const char* word) { return std::ranges::count(arguments, word) > 0; };
  const auto after = [&](const char* word, const char* otherwise) -> std::string {
    const auto at = std::ranges::find(arguments, word);
    return at == arguments.end() || at + 1 == arguments.end() ? otherwise : *(at + 1);
  };
  const int rounds = std::max(1, std::atoi(after("--rounds", "3").c_str()));
  if (has("--memory")) set_head_memory(int64_t{std::max(16, std::atoi(after("--memory", "128").c_str()))} << 20);
  if (has("--rows")) std::cout << rows_alone().dump() << "\n";
  if (has("--table")) write_table(after("--table", "head.md"), shapes_named(after("--shapes", "all")), rounds);
  if (has("--summary")) {
    Json out;
    for (const Shape& shape : shapes_named(after("--shapes", kShapes[0].name().c_str())))
      out[shape.name()] = summary_of(shape, rounds);
    std::cout << out.dump() << "\n";
  }
  if (has("--rows") || has("--table") || has("--summary")) return 0;
  register_benchmarks();
  benchmark::Initialize(&count, words);
  benchmark::RunSpecifiedBenchmarks();
}
