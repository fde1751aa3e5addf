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

#include "kullback/io/ggml_type.h"
#include "kullback/io/mapped_file.h"

namespace kullback {

/// Types of GGUF metadata; the values are those in the file.
enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

/// One value of the metadata, still as it stands in the file (checked to lie inside it).
struct GgufValue {
  GgufType type;  ///< of the value; array: of its elements
  bool is_array = false;
  std::uint64_t count = 1;           ///< elements of an array
  std::span<const std::byte> bytes;  ///< a string without its length; an array's elements one after another
};

/// Keys and values of a GGUF file. Getters without a fallback throw an Error that names the file and the key if it is missing;
/// all throw one if the value is of another type or does not fit. Whole numbers of every width are integers, and
/// integers and floats are numbers.
class GgufMetadata {
 public:
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool is_array(std::string_view key) const;

  std::string string(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  std::string string(std::string_view key, std::string_view fallback) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key, bool fallback) const;

  /// All of them, in alphabetical order of the keys.
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  friend class GgufParser;
  const GgufValue& at(std::string_view key) const;
  const GgufValue& scalar(std::string_view key, std::string_view wanted) const;
  const GgufValue& array(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view wanted) const;

  std::string file_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< outermost first (row-major): GGUF's own order reversed
  GgmlType type;
  std::int64_t elements;             ///< product of the shape
  std::span<const std::byte> bytes;  ///< in the mapped file
};

/// A GGUF file (versions 2 and 3, little-endian), memory-mapped; cheap to copy. Every count, length and offset is
/// checked against the file on opening, so that nothing read later can lie outside it.
/// Source: the GGUF specification (ggml, docs/gguf.md).
class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);
  /// From memory, which must outlive the result; `name` stands in messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }  ///< path, as in messages
  int version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }  ///< in the file's order
  const GgufTensor& tensor(std::string_view tensor_name) const;     ///< Error if there is none of that name
  const GgufTensor* find(std::string_view tensor_name) const;       ///< null if there is none

 private:
  friend class GgufParser;
  std::string name_;
  int version_ = 0;
  std::optional<MappedFile> file_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

/// The tensor's numbers, row-major. `out` has `tensor.elements` elements.
void dequantize(const GgufTensor& tensor, std::span<float> out);

}  // namespace kullback
