#include "kullback/rewards/reward_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/json.h"

extern char** environ;

namespace kullback {
namespace {

constexpr int patience_ms = 600000;

std::string question(const PromptedResponse& one) {
  Json prompt = "";
  if (one.prompt.size() == 1 && one.prompt[0].role == "user") {
    prompt = one.prompt[0].content;
  } else if (!one.prompt.empty()) {
    prompt = Json::array();
    for (const Message& m : one.prompt) prompt.push_back({{"role", m.role}, {"content", m.content}});
  }
  const Json line{{"prompt", std::move(prompt)}, {"response", one.response}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A running program and the pipes to and from it.
class RewardProgram {
 public:
  explicit RewardProgram(std::string command) : command_(std::move(command)) {
    std::array<int, 2> in{}, out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
      fail("reward program: no pipe: {}", std::strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const std::array<const char*, 4> words{"sh", "-c", command_.c_str(), nullptr};
    const int error = posix_spawn(&pid_, "/bin/sh", &actions, nullptr, const_cast<char* const*>(words.data()), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]);
    write_end_ = in[1], read_end_ = out[0];
    if (error != 0) fail("reward program \"{}\": cannot be started: {}", command_, std::strerror(error));
    fcntl(write_end_, F_SETFL, O_NONBLOCK);
  }
  ~RewardProgram() {
    close(write_end_), close(read_end_);
    if (pid_ <= 0) return;
    for (int i = 0; i < 200; ++i, usleep(10000)) {  // two seconds to end by itself
      if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    }
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  RewardProgram(const RewardProgram&) = delete;
  RewardProgram& operator=(const RewardProgram&) = delete;

  /// Writes as far as the program reads, and reads what it has answered meanwhile: neither waits for the other's pipe.
  std::vector<double> ask(std::span<const PromptedResponse> responses) {
    std::string questions;
    for (const PromptedResponse& one : responses) questions += question(one);
    std::string_view left = questions;
    std::vector<double> rewards;
    while (rewards.size() < responses.size()) {
      std::array<pollfd, 2> ends{{{read_end_, POLLIN, 0}, {write_end_, POLLOUT, 0}}};
      const int ready = poll(ends.data(), left.empty() ? 1 : 2, patience_ms);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) {
        fail("reward program \"{}\": no answer to response {} in {} minutes; does it flush each line that it writes?",
             command_, rewards.size() + 1, patience_ms / 60000);
      }
      if (ends[0].revents != 0) {
        read_some(rewards.size());
        take_answers(rewards, responses.size());
      } else if (!left.empty() && ends[1].revents != 0) {
        left.remove_prefix(write_some(left));
      }
    }
    if (!unread_.empty())
      fail("reward program \"{}\": writes more than a line a response: {}", command_, unread_.substr(0, 200));
    return rewards;
  }

 private:
  /// Bytes that went out; none where the program no longer reads, which the end of what it writes will explain.
  size_t write_some(std::string_view text) const {
    sigset_t broken_pipe, before;
    sigemptyset(&broken_pipe), sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
    const ssize_t count = write(write_end_, text.data(), text.size());
    const bool broken = count < 0 && errno == EPIPE;
    const timespec at_once{};
    if (broken) sigtimedwait(&broken_pipe, nullptr, &at_once);  // the signal that this thread holds back
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return broken ? text.size() : static_cast<size_t>(std::max<ssize_t>(count, 0));
  }

  void read_some(size_t answered) {
    std::array<char, 65536> buffer{};
    const ssize_t count = read(read_end_, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) fail("reward program \"{}\": {} after {} answers", command_, how_it_ended(), answered);
    unread_.append(buffer.data(), static_cast<size_t>(count));
  }

  std::string how_it_ended() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
    return fmt::format("ended with exit status {}", WEXITSTATUS(status));
  }

  void take_answers(std::vector<double>& rewards, size_t wanted) {
    for (size_t end; rewards.size() < wanted && (end = unread_.find('\n')) != std::string::npos;) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      const Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!answer.is_object() || !answer.value("reward", Json()).is_number()) {
        fail("reward program \"{}\": its answer to response {} is not {{\"reward\": NUMBER}} but: {}", command_,
             rewards.size() + 1, line.substr(0, 200));
      }
      rewards.push_back(answer["reward"].get<double>());
    }
  }

  std::string command_, unread_;
  pid_t pid_ = -1;
  int write_end_ = -1, read_end_ = -1;
};

}  // namespace

Reward::Scores reward_program(const std::string& command) {
  return [program = std::make_shared<RewardProgram>(command)](std::span<const PromptedResponse> responses) {
    return program->ask(responses);
  };
}

}  // namespace kullback
