#include "kullback/report/number.h"

#include <cmath>

#include <gtest/gtest.h>

namespace kullback {
namespace {

TEST(Number, SignificantDigits) {
  EXPECT_EQ(number_text(0.0), "0");
  EXPECT_EQ(number_text(1.0), "1.000");
  EXPECT_EQ(number_text(0.0412345, significant(3)), "0.0412");
  EXPECT_EQ(number_text(1234.5, significant(3)), "1234");
  EXPECT_EQ(number_text(-0.5, significant(2)), "-0.50");
  EXPECT_EQ(number_text(5e-5, significant(2)), "5.0e-05");
  EXPECT_EQ(number_text(1.5e12, significant(2)), "1.5e+12");
}

TEST(Number, FixedAndPercent) {
  EXPECT_EQ(number_text(1.005, fixed(1)), "1.0");
  EXPECT_EQ(number_text(0.725, percent(1)), "72.5%");
  EXPECT_EQ(number_text(-0.001, fixed(2)), "0.00");
  EXPECT_EQ(number_text(-0.01, fixed(2)), "-0.01");
}

TEST(Number, NotFinite) {
  EXPECT_EQ(number_text(std::nan(""), percent(1)), "n/a");
  EXPECT_EQ(number_text(HUGE_VAL), "inf");
  EXPECT_EQ(number_text(-HUGE_VAL, fixed(2)), "-inf");
}

TEST(Number, Intervals) {
  EXPECT_EQ(number_text(Interval{0.725, 0.65, 0.8}, percent(0)), "72% [65%, 80%]");
  EXPECT_EQ(number_text(Interval{0.725}, fixed(2)), "0.72");
  EXPECT_EQ(number_text(Interval{}, fixed(2)), "n/a");
}

TEST(Number, Durations) {
  EXPECT_EQ(duration_text(0.0123), "12 ms");
  EXPECT_EQ(duration_text(12.34), "12.3 s");
  EXPECT_EQ(duration_text(59.96), "1 min 00 s");
  EXPECT_EQ(duration_text(250), "4 min 10 s");
  EXPECT_EQ(duration_text(3600 * 2 + 5 * 60 + 59), "2 h 05 min");
  EXPECT_EQ(duration_text(86400 * 3 + 3600 * 4), "3 d 4 h");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(duration_text(HUGE_VAL), "?");
}

TEST(Number, Bytes) {
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1023.99), "1.0 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.2 * 1024 * 1024 * 1024), "3.2 GiB");
}

}  // namespace
}  // namespace kullback
