// One run shared by two processes, started as torchrun starts them.
#include <csignal>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/io/jsonl.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

#if __has_include(<gloo/algorithm.h>)
constexpr bool has_gloo = true;
#else
constexpr bool has_gloo = false;  // this build refuses several processes
#endif

struct Data {
  fs::path folder;
  std::string arguments;  // without --output
};

Data tiny_data(const std::string& name, int steps) {
  const fs::path folder = fresh_folder(name);
  save_model(tiny_model(), folder / "model");
  const std::string data = tiny_pairs(folder / "pairs.jsonl", 11);
  return {
      folder,
      fmt::format("align --method dpo --model {} --data {} --eval-data {} --max-steps {} --epochs 100 --batch-size 5 "
                  "--learning-rate 0.01 --eval-every 2 --samples 1 --sample-tokens 4 --limit \"kl<=0.01\"",
                  (folder / "model").string(), data, data, steps)};
}

std::string environment(int rank, int port) {
  return fmt::format("RANK={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}", rank, port);
}

int free_port() { return 20000 + (static_cast<int>(getpid()) + 7919) % 20000; }

int shell(const std::string& line) {
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Processes, TwoMakeTheRunOfOne) {
  if (!has_gloo) GTEST_SKIP() << "built without c10d";
  const Data data = tiny_data("two", 6);
  const fs::path one = data.folder / "one", two = data.folder / "two";
  ASSERT_EQ(run_program(data.arguments + " --output " + one.string()).status, 0);
  int statuses[2];
  const auto run = [&](int rank) {
    statuses[rank] = shell(fmt::format("{} '{}' {} --output {} >{}/log{} 2>&1", environment(rank, free_port()),
                                       KULLBACK_PROGRAM, data.arguments, two.string(), data.folder.string(), rank));
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  ASSERT_EQ(statuses[0], 0) << contents(data.folder / "log0");
  ASSERT_EQ(statuses[1], 0) << contents(data.folder / "log1");
  EXPECT_EQ(contents(data.folder / "log1"), "");  // the first one talks

  std::vector<Json> expected, found;
  read_jsonl(one / "metrics.jsonl", [&](int64_t, const Json& row) { expected.push_back(row); });
  read_jsonl(two / "metrics.jsonl", [&](int64_t, const Json& row) { found.push_back(row); });
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const auto& [name, value] : expected[i].items()) {
      if (!value.is_number() || name.ends_with("_low") || name.ends_with("_high")) continue;
      EXPECT_NEAR(value.get<double>(), found[i].at(name).get<double>(),
                  1e-5 * std::max(1.0, std::abs(value.get<double>())))
          << name << " at row " << i;
    }
  }
  EXPECT_TRUE(fs::exists(two / "report.html"));
  EXPECT_EQ(read_json(two / "resources.json").at("processes"), 2);
}

TEST(Processes, OneThatDiesEndsTheOtherWithAMessage) {
  if (!has_gloo) GTEST_SKIP() << "built without c10d";
  const Data data = tiny_data("dies", 100000);
  const fs::path log = data.folder / "log0", pid = data.folder / "pid";
  int status = -1;
  std::thread first([&] {
    status = shell(fmt::format("{} '{}' {} --output {} >{} 2>&1", environment(0, free_port() + 1), KULLBACK_PROGRAM,
                               data.arguments, (data.folder / "run").string(), log.string()));
  });
  std::thread other([&] {
    shell(fmt::format("{} sh -c 'echo $$ >{}; exec \"{}\" {} --output {} >/dev/null 2>&1'",
                      environment(1, free_port() + 1), pid.string(), KULLBACK_PROGRAM, data.arguments,
                      (data.folder / "run").string()));
  });
  const auto began = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - began; };
  while (!fs::exists(data.folder / "run/metrics.jsonl") && waited() < std::chrono::minutes(3))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(std::stoi(contents(pid)), SIGKILL);
  first.join();
  other.join();
  EXPECT_EQ(status, 2);
  EXPECT_THAT(contents(log), HasSubstr("another process of this run has ended"));
}

}  // namespace
}  // namespace kullback::test
