#include "kullback/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kullback/base/error.h"

namespace kullback {
namespace {

/// Closes a file descriptor when it leaves scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) {
    if (errno == ENOENT) fail("{}: no such file", path.string());
    fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.number, &status) != 0) fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("{}: is a directory, not a file", path.string());
  if (!S_ISREG(status.st_mode)) fail("{}: is not a regular file", path.string());
  if (status.st_size == 0) fail("{}: is empty", path.string());

  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) fail("{}: cannot be mapped into memory: {}", path.string(), std::strerror(errno));

  MappedFile mapped;
  mapped.path_ = path;
  mapped.mapping_ =
      std::shared_ptr<const void>(address, [size](const void* mapping) { ::munmap(const_cast<void*>(mapping), size); });
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapped;
}

}  // namespace kullback
