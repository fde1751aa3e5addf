#pragma once

namespace kullback {

/// While one of these lives, Ctrl-C (SIGINT) and SIGTERM ask the loop to stop after the current step; a second one ends the
/// program at once, as if nobody had caught it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// Whether it was asked since the last guard began; also when that guard is gone.
bool interrupted();

}  // namespace kullback
