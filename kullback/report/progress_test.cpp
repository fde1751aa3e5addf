#include "kullback/report/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include "kullback/report/escape.h"

namespace kullback {
namespace {

using testing::HasSubstr;
using testing::Not;

ProgressState half_way() {
  ProgressState state;
  state.label = "train";
  state.step = 100;
  state.total = 200;
  state.seconds = 50;
  state.figures = {{"loss", 0.61234}, {"accuracy", 0.75}, {"KL", 0.0123}};
  return state;
}

TEST(ProgressLine, SaysAllWhereThereIsRoom) {
  EXPECT_EQ(
      progress_line(half_way(), 120),
      "train  ████████████░░░░░░░░░░░░  100/200  loss 0.612  accuracy 0.750  KL 0.0123  2.00 steps/s  50.0 s left");
}

TEST(ProgressLine, FitsAnyWidth) {
  ProgressState state = half_way();
  for (int width = 0; width <= 150; ++width) {
    EXPECT_LE(display_width(progress_line(state, width)), static_cast<std::size_t>(width));
    state.label = "日本語 training";
    EXPECT_LE(display_width(progress_line(state, width)), static_cast<std::size_t>(width));
  }
}

TEST(ProgressLine, LetsTheLastFiguresGoFirst) {
  const std::string line = progress_line(half_way(), 80);
  EXPECT_THAT(line, HasSubstr("loss 0.612"));
  EXPECT_THAT(line, HasSubstr("100/200"));
  EXPECT_THAT(line, HasSubstr("50.0 s left"));
  EXPECT_THAT(line, Not(HasSubstr("KL")));
}

TEST(ProgressLine, CountsTheRateFromWhereTheRunBegan) {
  ProgressState state = half_way();
  state.first_step = 50;  // resumed: 50 steps in 50 s
  EXPECT_THAT(progress_line(state, 150), HasSubstr("1.00 steps/s  1 min 40 s left"));
  state.seconds = 200;
  EXPECT_THAT(progress_line(state, 150), HasSubstr("4.00 s/step"));
}

TEST(ProgressLine, BeginningEndAndUnknownTotal) {
  ProgressState state = half_way();
  state.step = 0;
  state.seconds = 0;
  EXPECT_EQ(progress_line(state, 150).find("left"), std::string::npos);
  state.step = 200;
  state.seconds = 75;
  EXPECT_THAT(progress_line(state, 150), HasSubstr("1 min 15 s in all"));
  state.total = 0;
  EXPECT_THAT(progress_line(state, 150), HasSubstr("train  200 steps"));
  state.total = 100;  // more steps than foreseen
  EXPECT_THAT(progress_line(state, 150), HasSubstr("██  200/100"));
  state.figures = {{"loss", std::nan("")}};
  EXPECT_THAT(progress_line(state, 150), HasSubstr("loss n/a"));
}

TEST(ProgressText, IsOneSentenceForLogs) {
  EXPECT_EQ(progress_text(half_way()),
            "train: step 100/200 (50%), loss 0.612, accuracy 0.750, KL 0.0123, 2.00 steps/s, 50.0 s left");
}

std::string written(const std::function<void(std::FILE*)>& use) {
  std::FILE* file = std::tmpfile();
  use(file);
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST(Progress, WritesFewPlainLinesToAFile) {
  const std::string text = written([](std::FILE* file) {
    Progress progress("train", 1000, 0, {file, false, 3600});
    for (int step = 1; step <= 1000; ++step) progress.update(step, {{"loss", 1.0 / step}});
    progress.message("saved");
    progress.finish();
    progress.finish();
  });
  EXPECT_THAT(text, testing::StartsWith("train: step 1/1000 (0%), loss 1.00"));
  EXPECT_THAT(text, HasSubstr("saved\ntrain: step 1000/1000 (100%), loss 0.00100"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Progress, QuietSaysNothing) {
  EXPECT_EQ(written([](std::FILE* file) {
              Progress progress("train", 10, 0, {file, true, 0});
              progress.update(5);
              progress.message("saved");
              progress.finish();
            }),
            "");
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) GTEST_SKIP() << "no pseudo-terminal here";
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  std::FILE* terminal = fdopen(slave, "w");
  {
    Progress progress("train", 10'000, 0, {terminal, false, 10});
    for (int step = 1; step <= 10'000; ++step) progress.update(step);
  }
  std::fflush(terminal);
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string text;
  char piece[4096];
  for (ssize_t size; (size = read(master, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(size));
  std::fclose(terminal);
  close(master);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.front(), '\r');
  EXPECT_THAT(text, HasSubstr("10000/10000"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\r'), 1000);  // not once a step
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);     // the finished line
}

}  // namespace
}  // namespace kullback
