#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace kullback {

/// Writes scalars that TensorBoard shows. The file `events.out.tfevents.<seconds>.<process>.<number>.kullback` is
/// made in `folder` (made where missing) with the first record; several writers to one folder, as after a resume, are
/// shown as one run. Format: TFRecord frames of tensorflow.Event messages (tensorboard/compat/proto/event.proto,
/// summary.proto).
class TensorboardWriter {
 public:
  /// Throws Error where the folder or file can't be made.
  explicit TensorboardWriter(const std::filesystem::path& folder);

  /// `wall_time` in seconds since 1970; 0: now. NaN and infinities are written as they are. Throws Error on a full
  /// disk.
  void scalar(std::string_view tag, std::int64_t step, double value, double wall_time = 0);
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

namespace detail {
/// CRC-32C (Castagnoli, RFC 3720 B.4).
std::uint32_t crc32c(std::string_view bytes);
/// Length, its masked CRC, the bytes, their masked CRC.
std::string tfrecord(std::string_view bytes);
std::string scalar_event(std::string_view tag, std::int64_t step, float value, double wall_time);
}  // namespace detail

}  // namespace kullback
