#include "kullback/report/tensorboard.h"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "kullback/base/error.h"
#include "kullback/report/escape.h"

namespace kullback {
namespace detail {
namespace {

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;  // the polynomial, reflected
    table[byte] = crc;
  }
  return table;
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
  return bytes;
}

// CRCs of data that itself holds CRCs are masked, so that they do not become trivial.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

// Protocol Buffers wire format.
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field(unsigned number, Wire wire) {
  return varint((std::uint64_t{number} << 3) | static_cast<unsigned>(wire));
}
std::string field(unsigned number, double value) {
  return field(number, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string field(unsigned number, float value) {
  return field(number, Wire::fixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string field(unsigned number, std::int64_t value) {
  return field(number, Wire::varint) + varint(static_cast<std::uint64_t>(value));
}
std::string field(unsigned number, std::string_view value) {
  return field(number, Wire::bytes) + varint(value.size()) + std::string(value);
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = crc_table();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(std::uint64_t{bytes.size()});
  return length + little_endian(masked(crc32c(length))) + std::string(bytes) + little_endian(masked(crc32c(bytes)));
}

std::string scalar_event(std::string_view tag, std::int64_t step, float value, double wall_time) {
  // Event: 1 wall_time, 2 step, 5 summary; Summary: 1 value; Summary.Value: 1 tag, 2 simple_value.
  const std::string summary_value = field(1, std::string_view(clean_utf8(tag))) + field(2, value);
  const std::string summary = field(1, std::string_view(summary_value));
  return field(1, wall_time) + field(2, step) + field(5, std::string_view(summary));
}

}  // namespace detail

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("{}: can't make the folder: {}", folder.string(), error.message());
  const double time = detail::now();
  // TensorBoard reads the files of a folder in the order of their names. A second writer within one second and
  // process must come after the first, not over it.
  for (int n = 0;; ++n) {
    path_ = folder /
            fmt::format("events.out.tfevents.{:010d}.{}.{:03d}.kullback", static_cast<long long>(time), getpid(), n);
    if (!std::filesystem::exists(path_)) break;
  }
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) fail("{}: can't write: {}", path_.string(), std::strerror(errno));
  // The first record names the format's version: Event.file_version is field 3.
  write(detail::field(1, time) + detail::field(3, std::string_view("brain.Event:2")));
  flush();
}

void TensorboardWriter::scalar(std::string_view tag, std::int64_t step, double value, double wall_time) {
  write(detail::scalar_event(tag, step, static_cast<float>(value), wall_time > 0 ? wall_time : detail::now()));
}

void TensorboardWriter::flush() {
  if (!file_.flush()) fail("{}: can't write: {}", path_.string(), std::strerror(errno));
}

void TensorboardWriter::write(const std::string& event) {
  const std::string record = detail::tfrecord(event);
  if (!file_.write(record.data(), static_cast<std::streamsize>(record.size())))
    fail("{}: can't write: {}", path_.string(), std::strerror(errno));
}

}  // namespace kullback
