#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/io/gguf.h"

namespace kullback {

/// Makes a GGUF file (version 3): metadata and descriptions of tensors first, then write() asks for the numbers one tensor
/// at a time, so that a model need not be in memory twice.
class GgufWriter {
 public:
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::uint32_t value);
  void add(std::string_view key, std::int32_t value);
  void add(std::string_view key, std::uint64_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const std::int32_t> values);
  void add(std::string_view key, std::span<const float> values);
  /// As it stands in another file, whatever its type.
  void add(std::string_view key, const GgufValue& value);

  /// `shape` outermost first; of 1 to 4 dimensions, none zero, the last whole blocks of the type. Error if not, or if the name
  /// repeats.
  void add_tensor(std::string name, std::vector<std::int64_t> shape, GgmlType type);

  /// Calls `numbers(tensor)` for each tensor in the order given; it returns the tensor's bytes as the file holds them, which
  /// must stay until the next call (quantize() makes them from floats).
  using Bytes = std::function<std::span<const std::byte>(const GgufTensor& tensor)>;
  void write(const std::filesystem::path& path, const Bytes& bytes_of) const;
  /// The whole file in memory.
  std::vector<std::byte> bytes(const Bytes& bytes_of) const;

 private:
  std::string& begin_pair(std::string_view key, GgufType type);
  std::string head() const;

  std::string pairs_;
  std::uint64_t pair_count_ = 0;
  std::vector<GgufTensor> tensors_;
};

}  // namespace kullback
