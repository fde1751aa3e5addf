#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace kullback {

struct ProgressState {
  std::string label;  ///< what is being done: "train", "score"
  std::string unit = "step";
  std::int64_t step = 0, total = 0;  ///< total 0: not known
  std::int64_t first_step = 0;       ///< where this run began (resumed runs); the rate counts from here
  double seconds = 0;                ///< since this run began
  std::vector<std::pair<std::string, double>> figures;  ///< named numbers, most important first
};

/// The state on one line of at most `width` columns: label, bar, step/total, figures, rate, time left. Where room is
/// short, the last figures go first, then the rate, then the bar.
std::string progress_line(const ProgressState& state, int width, bool colours = false);

/// The same without a bar, for logs: "train: step 40/200 (20%), loss 0.612, 1.3 steps/s, 2 min 03 s left".
std::string progress_text(const ProgressState& state);

/// Shows progress on a stream, stderr by default. On a terminal one line is redrawn at most ten times a second;
/// elsewhere a plain line is written at the start, the end and about every `plain_seconds`. Quiet: nothing at all.
class Progress {
 public:
  struct Settings {
    std::FILE* stream = stderr;
    bool quiet = false;
    double plain_seconds = 10;
  };
  Progress(std::string label, std::int64_t total, std::int64_t first_step = 0);
  Progress(std::string label, std::int64_t total, std::int64_t first_step, Settings settings);
  ~Progress();  ///< leaves a terminal with a finished line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t step, std::vector<std::pair<std::string, double>> figures = {});
  /// A line of text above the bar.
  void message(const std::string& text);
  /// Draws the last state for good. Called once; later calls do nothing.
  void finish();

 private:
  void draw(bool last);

  using Clock = std::chrono::steady_clock;
  Settings settings_;
  ProgressState state_;
  bool terminal_ = false, finished_ = false, drawn_ = false;
  Clock::time_point start_, last_drawn_;
};

}  // namespace kullback
