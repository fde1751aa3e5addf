#include "kullback/report/tensorboard.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/report/look_test.h"

namespace kullback {
namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(detail::crc32c(""), 0U);
  EXPECT_EQ(detail::crc32c("123456789"), 0xE3069283U);              // the check value of CRC-32C
  EXPECT_EQ(detail::crc32c(std::string(32, '\0')), 0x8A9136AAU);    // RFC 3720 B.4
  EXPECT_EQ(detail::crc32c(std::string(32, '\xff')), 0x62A8AB43U);  // RFC 3720 B.4
}

TEST(ScalarEvent, HasTheFieldsOfTheProtocol) {
  const std::string event = detail::scalar_event("a", 300, 1.0F, 2.0);
  EXPECT_EQ(event, bytes_of({0x09, 0,    0,    0,    0,   0, 0, 0, 0x40,  // 1: wall_time, fixed64
                             0x10, 0xAC, 0x02,                            // 2: step, varint
                             0x2A, 0x0A,                                  // 5: summary
                             0x0A, 0x08,                                  // 1: value
                             0x0A, 0x01, 'a',                             // 1: tag
                             0x15, 0,    0,    0x80, 0x3F}));             // 2: simple_value, fixed32
}

TEST(TfRecord, FramesBytes) {
  const std::string record = detail::tfrecord("abc");
  EXPECT_EQ(record.size(), 8U + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), bytes_of({3, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

// Read back by TensorBoard itself in tests/interop/tensorboard_events.py, which knows these values.
TEST(TensorboardWriter, WritesScalars) {
  const auto folder = look_folder("events");
  TensorboardWriter writer(folder);
  for (int step = 0; step < 100; ++step) writer.scalar("train/loss", step, 1.0 / (step + 1), 1e9 + step);
  writer.scalar("eval/KL ‖ ½", std::int64_t{1} << 40, -2.5);
  writer.scalar("broken", 7, std::nan(""));
  writer.scalar("broken", 8, HUGE_VAL);
  writer.scalar("bad \xff bytes", 1, 3);
  writer.flush();
  TensorboardWriter resumed(folder);
  EXPECT_NE(resumed.path(), writer.path());
  resumed.scalar("train/loss", 100, 0.5, 1e9 + 100);
  resumed.flush();

  const std::string file = read_text(writer.path());
  std::size_t records = 0;
  for (std::size_t at = 0; at < file.size(); ++records) {
    const auto size = static_cast<unsigned char>(file[at]);
    const std::string body = file.substr(at + 12, size);
    EXPECT_EQ(file.substr(at, size + 16U), detail::tfrecord(body));
    at += size + 16U;
  }
  EXPECT_EQ(records, 1U + 100 + 4);
}

TEST(TensorboardWriter, NamesTheFolderItCannotMake) {
  const auto folder = look_folder("blocked");
  std::ofstream(folder / "file") << "x";
  try {
    TensorboardWriter writer(folder / "file" / "runs");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("runs: can't make the folder"), std::string::npos);
  }
}

}  // namespace
}  // namespace kullback
