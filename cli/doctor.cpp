// `kullback doctor`: what is here, and whether it works.
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/registry.h"
#include "kullback/divergence/head.h"
#include "kullback/divergence/row_kernels.h"
#include "kullback/io/files.h"
#include "kullback/report/table.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

struct DoctorOptions {
  bool json = false;
};

const Options<DoctorOptions>& doctor_options() {
  static const auto options =
      Options<DoctorOptions>().option("json", &DoctorOptions::json, "print JSON instead of tables");
  return options;
}

Command describe(DoctorOptions& options) {
  Command command(
      "doctor", "what is installed here, and a self-test of a few seconds",
      "Says which version, LibTorch, vector instructions and threads are in use, which models are in the cache, and "
      "tests\n"
      "the streaming head and the tokenizer against plain computations. Exit status 1 if a test does not pass.");
  command.options("Doctor", doctor_options(), &options).example("kullback doctor");
  return command;
}

std::string models_in_cache() {
  std::string names;
  std::error_code nothing;
  for (const auto& entry : fs::directory_iterator(cache_folder() / "models", nothing)) {
    if (entry.path().filename().string().starts_with(".")) continue;
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  }
  return names.empty() ? "none (kullback pull gets some)" : names;
}

struct Test {
  std::string name;
  bool passed = false;
  std::string found;
};

/// KL and its gradient by the head, and by LibTorch's own operations on whole logits.
Test head_test(at::ScalarType type, double tolerance) {
  at::manual_seed(1);
  const auto options = at::TensorOptions(type);
  Rows policy{.hidden = at::randn({64, 48}, options).requires_grad_(true),
              .weight = at::randn({3001, 48}, options),
              .bias = {}},
      reference{.hidden = at::randn({64, 32}, options), .weight = at::randn({3001, 32}, options), .bias = {}};
  HeadRequest request;
  request.divergences = {divergence("kl").from_policy()};
  HeadStatistics ones;
  ones.divergences = {at::ones({64}, options)};
  const HeadLoss loss = head_loss(policy, reference, request, ones);
  loss.loss.backward();
  const at::Tensor ours = policy.hidden.grad().clone();
  policy.hidden.mutable_grad().reset();
  const at::Tensor q = at::log_softmax(at::matmul(policy.hidden, policy.weight.t()), 1),
                   p = at::log_softmax(at::matmul(reference.hidden, reference.weight.t()), 1);
  const at::Tensor plain = (q.exp() * (q - p)).sum();
  plain.backward();
  const double value = std::abs(loss.loss.item<double>() / plain.item<double>() - 1),
               gradient = ((ours - policy.hidden.grad()).abs().max() / ours.abs().max()).item<double>();
  return {.name = fmt::format("the head's KL and its gradient against plain LibTorch, {}", at::toString(type)),
          .passed = value < tolerance && gradient < tolerance,
          .found = fmt::format("largest relative difference {:.1e}", std::max(value, gradient))};
}

/// Every byte there is, there and back.
Test tokenizer_test() {
  const Tokenizer tokenizer(byte_level_spec("doctor"));
  std::string text;
  for (int i = 0; i < 100000; ++i) text += static_cast<char>((i * 7919) >> 3);
  const bool same = tokenizer.decode(tokenizer.encode(text), /*skip_special=*/false) == text;
  return {.name = "100,000 arbitrary bytes through a tokenizer and back",
          .passed = same,
          .found = same ? "equal" : "not equal"};
}

/// A product of the head's shape: what the machine can do.
std::string matrix_speed() {
  const at::Tensor a = at::randn({512, 576}), b = at::randn({16384, 576});
  double best = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::matmul(a, b.t());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return fmt::format("{:.0f} GFLOP/s in a 512 x 576 x 16384 product, float32", 2.0 * 512 * 576 * 16384 / best * 1e-9);
}

int run(const std::vector<std::string>& given) {
  DoctorOptions options;
  if (!describe(options).parse(given)) return exit_success;
  const std::vector<std::pair<std::string, std::string>> facts{
      {"kullback", KULLBACK_VERSION},
      {"LibTorch", fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH)},
      {"vector instructions", detail::kernel_target()},
      {"threads", fmt::format("{} (--threads N changes it)", at::get_num_threads())},
      {"matrix products", matrix_speed()},
      {"memory",
       dlsym(RTLD_DEFAULT, "mallctl") != nullptr ? "jemalloc" : "the C library's allocator: steps take more of it"},
      {"methods", std::to_string(methods().size())},
      {"cache folder", cache_folder().string()},
      {"models there", models_in_cache()}};
  const std::vector<Test> tests{head_test(at::kDouble, 1e-10), head_test(at::kFloat, 1e-4), tokenizer_test()};
  bool passed = true;
  for (const Test& test : tests) passed = passed && test.passed;
  if (options.json) {
    Json json{{"passed", passed}, {"tests", Json::array()}};
    for (const auto& [name, value] : facts) json[name] = value;
    for (const Test& t : tests) json["tests"].push_back({{"name", t.name}, {"passed", t.passed}, {"found", t.found}});
    fmt::print("{}\n", json.dump(1));
    return passed ? exit_success : exit_not_passed;
  }
  Table table{.title = "", .columns = {text_column("what"), text_column("here")}, .rows = {}};
  for (const auto& [name, value] : facts) table.rows.push_back({Cell(name), Cell(value)});
  Table tested{
      .title = "Self-test", .columns = {text_column(""), text_column("test"), text_column("found")}, .rows = {}};
  for (const Test& t : tests)
    tested.rows.push_back(
        {Cell(t.passed ? "passes" : "FAILS", t.passed ? Tone::good : Tone::bad), Cell(t.name), Cell(t.found)});
  fmt::print("{}\n{}", table_terminal(table, terminal_style(stdout)), table_terminal(tested, terminal_style(stdout)));
  return passed ? exit_success : exit_not_passed;
}

const RegisteredProgram program{{"doctor", "what is installed here, and a self-test of a few seconds",
                                 [] {
                                   static DoctorOptions options;
                                   return describe(options);
                                 },
                                 run}};

}  // namespace
}  // namespace kullback
