#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kullback {

/// How the numbers of a GGUF tensor are stored; the values are those in the file. The quantised types hold blocks of 32
/// (the K types: 256) neighbouring numbers with a scale each.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct GgmlLayout {
  GgmlType type;
  std::string_view name;  ///< as other tools print it: "Q4_1"
  std::int64_t block;     ///< numbers in a block
  std::int64_t block_bytes;
};

/// Every type that is read.
std::span<const GgmlLayout> ggml_layouts();
const GgmlLayout& layout_of(GgmlType type);
/// The type with that number in a file, or that name ("Q8_0", any case); nothing if it is not one that is read.
std::optional<GgmlType> ggml_type(std::uint32_t number);
std::optional<GgmlType> ggml_type(std::string_view name);
/// Name of any type that GGUF files are known to have, also of those that are not read here; empty if unknown.
std::string_view ggml_type_name(std::uint32_t number);

/// Numbers of `blocks` (whole blocks of `type`) as float32. `out` has as many elements as the blocks hold.
void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> out);

/// The inverse for F32, F16, BF16, Q8_0, Q4_0 and Q4_1, each number rounded to the nearest that its block can hold.
/// Error for the other types, and if `values` is not whole blocks.
void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace kullback
