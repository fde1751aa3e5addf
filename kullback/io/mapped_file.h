#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace kullback {

/// A file mapped into memory, read-only. Copies share one mapping, which lives as long as the last of them.
class MappedFile {
 public:
  /// Error if the file is missing, cannot be read, is not a regular file, or is empty.
  static MappedFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const void> mapping_;
  std::span<const std::byte> bytes_;
};

}  // namespace kullback
