#include "kullback/report/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <unistd.h>

#include "kullback/base/log.h"
#include "kullback/report/escape.h"
#include "kullback/report/number.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

constexpr double redraw_seconds = 0.1;

// Before this much time has passed, a rate says more about the clock than about the work.
constexpr double rate_seconds = 0.05;

double rate_of(const ProgressState& state) {
  const auto done = static_cast<double>(state.step - state.first_step);
  return state.seconds >= rate_seconds && done > 0 ? done / state.seconds : 0;
}

std::string rate_text(const ProgressState& state) {
  const double rate = rate_of(state);
  if (rate <= 0) return {};
  return rate >= 1 ? fmt::format("{} {}s/s", number_text(rate, significant(3)), state.unit)
                   : fmt::format("{} s/{}", number_text(1 / rate, significant(3)), state.unit);
}

std::string left_text(const ProgressState& state) {
  const double rate = rate_of(state);
  if (state.total <= 0) return duration_text(state.seconds);
  if (state.step >= state.total) return duration_text(state.seconds) + " in all";
  return rate > 0 ? duration_text(static_cast<double>(state.total - state.step) / rate) + " left" : "";
}

double share_of(const ProgressState& state) {
  if (state.total <= 0) return 0;
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(state.total), 0.0, 1.0);
}

// Eighths of a block make the bar move smoothly.
std::string bar_text(double share, int width) {
  static constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(share * width * 8);
  std::string bar;
  for (int i = 0; i < filled / 8; ++i) bar += "█";
  bar += eighths[filled % 8];
  for (int i = filled / 8 + (filled % 8 > 0 ? 1 : 0); i < width; ++i) bar += "░";
  return bar;
}

std::string count_text(const ProgressState& state) {
  return state.total > 0 ? fmt::format("{}/{}", state.step, state.total)
                         : fmt::format("{} {}s", state.step, state.unit);
}

std::string figure_text(const std::pair<std::string, double>& figure) {
  return fmt::format("{} {}", clean_utf8(figure.first), number_text(figure.second, significant(3)));
}

}  // namespace

std::string progress_line(const ProgressState& state, int width, bool colours) {
  const auto room = static_cast<std::size_t>(std::max(0, width));
  std::size_t figures = state.figures.size();
  std::string rate = rate_text(state);
  int bar_width = state.total > 0 ? std::clamp(width / 5, 8, 30) : 0;

  const auto assembled = [&](bool coloured) {
    std::string line = clean_utf8(state.label);
    const auto add = [&](const std::string& part) {
      if (part.empty()) return;
      if (!line.empty()) line += "  ";
      line += part;
    };
    if (bar_width > 0)
      add(coloured ? "\x1b[36m" + bar_text(share_of(state), bar_width) + "\x1b[0m"
                   : bar_text(share_of(state), bar_width));
    add(count_text(state));
    for (std::size_t i = 0; i < figures; ++i) add(figure_text(state.figures[i]));
    add(rate);
    add(left_text(state));
    return line;
  };
  while (display_width(assembled(false)) > room) {
    if (figures > 1) {
      --figures;
    } else if (bar_width > 8) {
      bar_width = 8;
    } else if (!rate.empty()) {
      rate.clear();
    } else if (bar_width > 0) {
      bar_width = 0;
    } else if (figures > 0) {
      --figures;
    } else {
      return clip_to_width(assembled(false), room);
    }
  }
  return assembled(colours);
}

std::string progress_text(const ProgressState& state) {
  std::string text = state.label.empty() ? "" : clean_utf8(state.label) + ": ";
  text += state.total > 0
              ? fmt::format("{} {}/{} ({:.0f}%)", state.unit, state.step, state.total, 100 * share_of(state))
              : fmt::format("{} {}", state.unit, state.step);
  for (const auto& figure : state.figures) text += ", " + figure_text(figure);
  for (const std::string& part : {rate_text(state), left_text(state)}) {
    if (!part.empty()) text += ", " + part;
  }
  return text;
}

Progress::Progress(std::string label, std::int64_t total, std::int64_t first_step)
    : Progress(std::move(label), total, first_step, {.quiet = verbosity() == Verbosity::quiet}) {}

Progress::Progress(std::string label, std::int64_t total, std::int64_t first_step, Settings settings)
    : settings_(settings), terminal_(isatty(fileno(settings.stream)) != 0), start_(Clock::now()), last_drawn_(start_) {
  state_.label = std::move(label);
  state_.total = total;
  state_.step = state_.first_step = first_step;
}

Progress::~Progress() {
  if (drawn_) finish();
}

void Progress::update(std::int64_t step, std::vector<std::pair<std::string, double>> figures) {
  state_.step = step;
  if (!figures.empty()) state_.figures = std::move(figures);
  const double since = std::chrono::duration<double>(Clock::now() - last_drawn_).count();
  if (!drawn_ || since >= (terminal_ ? redraw_seconds : settings_.plain_seconds)) draw(false);
}

void Progress::message(const std::string& text) {
  if (settings_.quiet) return;
  fmt::print(settings_.stream, "{}{}\n", terminal_ && drawn_ && !finished_ ? "\r\x1b[K" : "", clean_utf8(text));
  if (terminal_ && drawn_ && !finished_) draw(false);
  std::fflush(settings_.stream);
}

void Progress::finish() {
  if (finished_) return;
  draw(true);
  finished_ = true;
}

void Progress::draw(bool last) {
  if (settings_.quiet || finished_) return;
  last_drawn_ = Clock::now();
  drawn_ = true;
  state_.seconds = std::chrono::duration<double>(last_drawn_ - start_).count();
  if (terminal_) {
    const TerminalStyle style = terminal_style(settings_.stream);
    fmt::print(settings_.stream, "\r{}\x1b[K{}", progress_line(state_, style.width - 1, style.colours),
               last ? "\n" : "");
  } else {
    fmt::print(settings_.stream, "{}\n", progress_text(state_));
  }
  std::fflush(settings_.stream);
}

}  // namespace kullback
