#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kullback/io/mapped_file.h"

namespace kullback {

/// Types of numbers in safetensors files.
enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

std::string_view dtype_name(DType type);  ///< as in the file: "BF16"
std::optional<DType> dtype_of(std::string_view name);
std::size_t dtype_bytes(DType type);

/// A tensor in a mapped file, or one to be written.
struct TensorBytes {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;  ///< row-major; empty: a scalar
  std::span<const std::byte> bytes;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// A safetensors file, memory-mapped; cheap to copy. Offsets, types and lengths are checked on opening.
/// Source: the format's own description (safetensors, README).
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);
  /// From memory, which must outlive the result; `name` stands in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  std::span<const TensorBytes> tensors() const { return tensors_; }  ///< in the order of their bytes
  const TensorBytes& tensor(std::string_view tensor_name) const;     ///< Error if there is none of that name
  const TensorBytes* find(std::string_view tensor_name) const;       ///< null if there is none

 private:
  std::string name_;
  std::optional<MappedFile> file_;
  SafetensorsMetadata metadata_;
  std::vector<TensorBytes> tensors_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

/// Writes the tensors, widest types first so that each is aligned, else in the order given. Error if a name repeats, a shape
/// and its bytes are at odds, or the disk is full.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace kullback
