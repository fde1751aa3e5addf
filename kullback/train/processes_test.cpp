// Two processes of this test program itself, as torchrun would start them.
#include "kullback/train/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "kullback/base/error.h"

namespace kullback {
namespace {

using ::testing::ElementsAre;

#if __has_include(<gloo/algorithm.h>)
constexpr bool has_gloo = true;
#else
constexpr bool has_gloo = false;  // this build refuses several processes
#endif

bool is_child() { return std::getenv("KULLBACK_TEST_CHILD") != nullptr; }

/// Runs one test in `count` processes at once; gives back their exit statuses.
std::vector<int> run_children(const std::string& test, int count, int port) {
  std::vector<int> statuses(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  const std::string program = std::to_string(getpid());
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string line = fmt::format(
          "KULLBACK_TEST_CHILD=1 RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} /proc/{}/exe "
          "--gtest_also_run_disabled_tests --gtest_filter={} >/dev/null",
          rank, count, port, program, test);
      const int status = std::system(line.c_str());
      statuses[static_cast<size_t>(rank)] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

int free_port() { return 20000 + static_cast<int>(getpid()) % 20000; }

// What each process does. Disabled, so that no one runs them alone: the tests below start them, several at once.
TEST(ProcessesChild, DISABLED_Sums) {
  ASSERT_TRUE(is_child());
  const Processes& all = processes();
  ASSERT_EQ(all.count(), 3);
  EXPECT_THAT(all.gather(std::string(static_cast<size_t>(all.rank()), 'x')), ElementsAre("", "x", "xx"));
  EXPECT_TRUE(all.any(all.rank() == 1));
  EXPECT_FALSE(all.any(false));
  const auto [begin, end] = all.share(8);
  EXPECT_THAT(all.gather(fmt::format("{}-{}", begin, end)), ElementsAre("0-2", "2-5", "5-8"));
  Figures own{{"loss", {0.1 * static_cast<double>(all.rank()), 1}}};
  if (all.rank() == 2) own["only here"] = {std::nan(""), 1};
  const Figures sum = all.sum(own);
  EXPECT_DOUBLE_EQ(sum.at("loss").sum, 0.0 + 0.1 + 0.2);
  EXPECT_EQ(sum.at("loss").count, 3);
  EXPECT_TRUE(std::isnan(sum.at("only here").sum));
  EXPECT_EQ(all.joined({own, own}).size(), 6U);
}

TEST(ProcessesChild, DISABLED_Gradients) {
  ASSERT_TRUE(is_child());
  // Each process has a row of the loss; the second weight is touched by the last process alone, the third by none.
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 3; ++i) weights.push_back(at::full({100}, i + 1.0, at::kDouble).requires_grad_(true));
  for (const int64_t bucket : {int64_t{1}, int64_t{1000}, int64_t{1} << 20}) {
    GradientSum sum(weights, bucket);
    for (int step = 0; step < 2; ++step) {
      for (at::Tensor& w : weights) w.mutable_grad().reset();
      const double rank = static_cast<double>(processes().rank());
      (weights[0].sum() * (rank + 1)).backward();  // an earlier batch of the step stays here until the end
      sum.begin();
      at::Tensor loss = (weights[0] * weights[0]).sum() * (rank + 1);
      if (rank == 1) loss = loss + weights[1].sum();
      loss.backward();
      sum.finish();
      EXPECT_DOUBLE_EQ(weights[0].grad()[7].item<double>(), 3 + 2 * 3);
      EXPECT_DOUBLE_EQ(weights[1].grad()[7].item<double>(), 1);
      EXPECT_DOUBLE_EQ(weights[2].grad()[7].item<double>(), 0);
    }
  }
}

TEST(ProcessesChild, DISABLED_OneDies) {
  ASSERT_TRUE(is_child());
  processes().wait_for_all();
  if (processes().rank() == 1) _exit(7);
  try {
    for (int i = 0; i < 100; ++i) processes().wait_for_all();
    FAIL() << "the other process is gone";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("another process of this run has ended"));
  }
}

TEST(Processes, SumTextsFiguresAndFlags) {
  if (!has_gloo) GTEST_SKIP() << "built without c10d";
  EXPECT_THAT(run_children("ProcessesChild.DISABLED_Sums", 3, free_port()), ElementsAre(0, 0, 0));
}

TEST(Processes, SumGradientsWhateverTheBuckets) {
  if (!has_gloo) GTEST_SKIP() << "built without c10d";
  EXPECT_THAT(run_children("ProcessesChild.DISABLED_Gradients", 2, free_port()), ElementsAre(0, 0));
}

TEST(Processes, AProcessWhoseFellowDiesSaysSo) {
  if (!has_gloo) GTEST_SKIP() << "built without c10d";
  EXPECT_THAT(run_children("ProcessesChild.DISABLED_OneDies", 2, free_port()), ElementsAre(0, 7));
}

TEST(Processes, AloneEverythingIsAtOnceDone) {
  if (is_child()) return;
  EXPECT_EQ(processes().count(), 1);
  EXPECT_EQ(processes().share(5), (std::pair<int64_t, int64_t>{0, 5}));
  EXPECT_THAT(processes().gather("a"), ElementsAre("a"));
  EXPECT_TRUE(processes().any(true));
}

}  // namespace
}  // namespace kullback
