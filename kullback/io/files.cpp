#include "kullback/io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <vector>

#include "kullback/base/error.h"

namespace kullback {
namespace {

namespace fs = std::filesystem;

/// A name beside `path` that no other process and no other call of this one uses.
fs::path temporary_sibling(const fs::path& path) {
  static std::atomic<int> count{0};
  const std::string name = fmt::format(".{}.partial-{}-{}", path.filename().string(), ::getpid(), count++);
  return path.parent_path() / name;
}

/// "runs/a/" names the same folder as "runs/a", but has no filename to rename to.
fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// A rename is on the disk only once its folder is. Best effort: some file systems refuse.
void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

NewFile::NewFile(fs::path path) : path_(std::move(path)), aside_(temporary_sibling(path_)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) fail("{}: is a directory, not a file", path_.string());
  descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

NewFile::~NewFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

void NewFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::append(std::string_view text) { append(std::as_bytes(std::span(text))); }

void NewFile::commit() {
  // Some file systems report a full disk only here.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) {
    fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  if (::rename(aside_.c_str(), path_.c_str()) != 0) {
    fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  ::close(std::exchange(descriptor_, -1));
  flush_folder(path_.parent_path());
}

void check_new_folder(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) fail("{}: exists and is not a folder", target.string());
  const bool empty = fs::is_empty(target, error);
  if (error) fail("{}: cannot be read: {}", target.string(), error.message());
  if (!empty) fail("{}: the output folder exists and is not empty", target.string());
}

NewFolder::NewFolder(const fs::path& target) : target_(without_trailing_slash(target)) {
  check_new_folder(target_);
  for (fs::path parent = target_.parent_path(); !fs::exists(parent); parent = parent.parent_path()) {
    first_created_ = parent;
  }
  aside_ = temporary_sibling(target_);
  std::error_code error;
  fs::create_directories(aside_, error);
  if (error) fail("{}: cannot be created: {}", target.string(), error.message());
}

NewFolder::~NewFolder() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(aside_, ignored);
  if (first_created_.empty()) return;
  // Parents made for this folder go too, innermost first, as long as nobody else has put something there.
  for (fs::path parent = target_.parent_path(); fs::remove(parent, ignored); parent = parent.parent_path()) {
    if (parent == first_created_) break;
  }
}

void NewFolder::commit() {
  check_new_folder(target_);
  std::error_code error;
  fs::rename(aside_, target_, error);
  if (error) fail("{}: cannot be created: {}", target_.string(), error.message());
  committed_ = true;
  flush_folder(target_.parent_path());
}

void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (auto entry = fs::recursive_directory_iterator(folder, ignored); entry != fs::recursive_directory_iterator();) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(".") && name.find(".partial-") != std::string::npos) {
      found.push_back(entry->path());
      entry.disable_recursion_pending();
    }
    entry.increment(ignored);
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

void write_file(const fs::path& path, std::string_view contents) {
  NewFile file(path);
  file.append(contents);
  file.commit();
}

std::string read_text(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT) fail("{}: no such file", path.string());
    fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  }
  // Read to the end rather than by size: pipes and /proc files have none.
  std::string text;
  char buffer[1 << 16];
  ssize_t count = 0;
  while ((count = ::read(descriptor, buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
  const int problem = count < 0 ? errno : 0;
  ::close(descriptor);
  if (problem == EISDIR) fail("{}: is a directory, not a file", path.string());
  if (problem != 0) fail("{}: cannot be read: {}", path.string(), std::strerror(problem));
  return text;
}

fs::path cache_folder() {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto own = variable("KULLBACK_CACHE"); !own.empty()) return own;
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return fs::path(xdg) / "kullback";
  const auto home = variable("HOME");
  if (home.empty()) fail("no cache folder: neither KULLBACK_CACHE nor XDG_CACHE_HOME nor HOME is set");
  return fs::path(home) / ".cache" / "kullback";
}

}  // namespace kullback
