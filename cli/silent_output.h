#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace kullback {

/// While it lives, nothing reaches standard output: for the parts of a command that ends in one JSON document.
class SilentOutput {
 public:
  explicit SilentOutput(bool silent) {
    if (!silent) return;
    std::fflush(stdout);
    kept_ = dup(STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
  ~SilentOutput() {
    if (kept_ < 0) return;
    std::fflush(stdout);
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
  }
  SilentOutput(const SilentOutput&) = delete;
  SilentOutput& operator=(const SilentOutput&) = delete;

 private:
  int kept_ = -1;
};

}  // namespace kullback
