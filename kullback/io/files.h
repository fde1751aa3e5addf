#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kullback {

/// A file being written aside: under a temporary name beside `path` until commit() renames it. A file that is not committed
/// is removed, so that whoever looks at `path` sees all of it or nothing. Errors (no such folder, disk full, …) name `path`.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text);
  /// Flushes to the disk and renames.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path aside_;
  int descriptor_ = -1;
};

/// A folder being written aside: path() is a temporary sibling of `target` until commit() renames it.
/// Error if `target` exists and is not an empty folder; in this case, and when not committed, nothing is left behind.
class NewFolder {
 public:
  explicit NewFolder(const std::filesystem::path& target);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return aside_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path aside_;
  std::filesystem::path first_created_;  // the outermost parent that did not exist before
  bool committed_ = false;
};

/// Error if `target` exists and is not an empty folder, so that a command can say so before it starts to work.
void check_new_folder(const std::filesystem::path& target);

/// Removes what a killed process has left unfinished in a folder and below it: files and folders that it was writing aside.
void remove_unfinished(const std::filesystem::path& folder);

/// Writes the whole file, or leaves what was there before.
void write_file(const std::filesystem::path& path, std::string_view contents);

/// The whole file. Error if it is missing, cannot be read, or is a directory. An empty file gives "".
std::string read_text(const std::filesystem::path& path);

/// Where downloaded models and prepared data are kept: $KULLBACK_CACHE, else $XDG_CACHE_HOME/kullback, else
/// ~/.cache/kullback. Not created here.
std::filesystem::path cache_folder();

/// SHA-256 (FIPS 180-4) in lower-case hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);
/// Of a file, through a memory map.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace kullback
