// A run that is killed again and again ends as one that never was.
#include <fcntl.h>
#include <csignal>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "cli/run_program_test.h"
#include "kullback/base/random.h"
#include "kullback/lm/save.h"
#include "kullback/train/tiny_model_test.h"

namespace kullback::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Runs the program and kills it, with no chance to tidy up, unless it is done before. True if it ended by itself, well.
bool finishes_within(std::chrono::microseconds time, const std::vector<std::string>& arguments, const fs::path& log) {
  std::vector<std::string> words{KULLBACK_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO), dup2(file, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    if (waitpid(child, &status, WNOHANG) == child) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << contents(log);
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return false;
}

std::vector<std::string> run_arguments(const fs::path& folder, const fs::path& out) {
  return {"align",
          "--method",
          "dpo",
          "--model",
          (folder / "model").string(),
          "--data",
          (folder / "pairs.jsonl").string(),
          "--output",
          out.string(),
          "--epochs",
          "6",
          "--batch-size",
          "2",
          "--save-every",
          "2",
          "--eval-every",
          "5",
          "--keep",
          "2",
          "--samples",
          "1",
          "--sample-tokens",
          "4",
          "--limit",
          "kl<=0.001",
          "--learning-rate",
          "0.01"};
}

TEST(Resume, AfterTwentyKillsTheRunIsTheSameByteForByte) {
  const fs::path folder = fresh_folder("killed");
  save_model(tiny_model(), folder / "model");
  tiny_pairs(folder / "pairs.jsonl", 14);

  constexpr auto long_enough = std::chrono::minutes(10);
  const auto began = Clock::now();
  ASSERT_TRUE(finishes_within(long_enough, run_arguments(folder, folder / "whole"), folder / "log"));
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();

  RandomStream moments(1, "kills");
  const fs::path out = folder / "killed";
  bool done = false;
  int kills = 0, from_checkpoint = 0;
  while (!done) {
    const bool begun = fs::exists(out / "config.toml");
    from_checkpoint += fs::exists(out / "checkpoints") && !fs::is_empty(out / "checkpoints") ? 1 : 0;
    const auto arguments =
        begun ? std::vector<std::string>{"align", "--resume", out.string()} : run_arguments(folder, out);
    // The first kills come while it starts, most within what is left of the run; at last it may end.
    const auto time = kills < 20 ? std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds * moments.uniform()))
                                 : std::chrono::microseconds(long_enough);
    done =
        finishes_within(time, arguments, folder / "log") || fs::exists(out / "report.html");  // killed on its way out
    if (done && kills < 20) {  // it was quicker than the kills: again from the start
      fs::remove_all(out);
      done = false;
    }
    ++kills;
  }
  EXPECT_GE(from_checkpoint, 3) << "hardly any kill came after a checkpoint";
  for (const char* file : {"metrics.jsonl", "evaluation.json", "config.toml", "adapter/adapter_model.safetensors"}) {
    std::string one = contents(folder / "whole" / file), other = contents(out / file);
    if (std::string(file) == "config.toml") {  // it holds the folder's own name
      one.erase(one.find("output = "), one.find('\n', one.find("output = ")) - one.find("output = "));
      other.erase(other.find("output = "), other.find('\n', other.find("output = ")) - other.find("output = "));
    }
    EXPECT_FALSE(one.empty()) << file;
    EXPECT_TRUE(one == other) << file << " differs after " << kills << " kills";
  }
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << "left behind: " << entry.path();
  }
}

}  // namespace
}  // namespace kullback::test
