// The block formats of GGML, as floats and back. Each decoder follows the layout of one block; numbers are little-endian.
// Source of the layouts: the struct definitions block_q* of ggml, and the GGUF specification.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kullback/base/error.h"
#include "kullback/io/ggml_type.h"
#include "kullback/io/half.h"

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors are read as little-endian");

namespace kullback {
namespace {

using Bytes = const std::uint8_t*;

std::uint16_t read_u16(Bytes at) { return static_cast<std::uint16_t>(at[0] | at[1] << 8); }
float read_half(Bytes at) { return float_from_half(read_u16(at)); }

// Blocks of 32: number j has its low four bits in byte j (low half) for j < 16, in byte j - 16 (high half) beyond.

void q8_0(Bytes block, float* out) {
  const float scale = read_half(block);
  for (int j = 0; j < 32; ++j) out[j] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + j]));
}

void q4_0(Bytes block, float* out) {
  const float scale = read_half(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>((block[2 + j] & 15) - 8);
    out[j + 16] = scale * static_cast<float>((block[2 + j] >> 4) - 8);
  }
}

void q4_1(Bytes block, float* out) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(block[4 + j] & 15) + minimum;
    out[j + 16] = scale * static_cast<float>(block[4 + j] >> 4) + minimum;
  }
}

/// Five bits: the fifth of number j is bit j of a 32-bit word.
struct FifthBits {
  std::uint32_t word;
  explicit FifthBits(Bytes at) { std::memcpy(&word, at, 4); }
  int operator()(int j) const { return static_cast<int>(word >> j & 1u) << 4; }
};

void q5_0(Bytes block, float* out) {
  const float scale = read_half(block);
  const FifthBits fifth(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(((block[6 + j] & 15) | fifth(j)) - 16);
    out[j + 16] = scale * static_cast<float>(((block[6 + j] >> 4) | fifth(j + 16)) - 16);
  }
}

void q5_1(Bytes block, float* out) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const FifthBits fifth(block + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>((block[8 + j] & 15) | fifth(j)) + minimum;
    out[j + 16] = scale * static_cast<float>((block[8 + j] >> 4) | fifth(j + 16)) + minimum;
  }
}

// Blocks of 256, in groups of 16 or 32 with a small scale each, itself scaled by the block's.

/// 16 scales (4 bits) and minima (4 bits) [16], two-bit numbers [64], scale, minimum.
void q2_k(Bytes block, float* out) {
  const Bytes scales = block;
  const Bytes quarters = block + 16;
  const float scale = read_half(block + 80);
  const float minimum = read_half(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(scales[group] & 15);
    const float group_minimum = minimum * static_cast<float>(scales[group] >> 4);
    // 128 numbers share 32 bytes: numbers 0-31 in the lowest two bits, 32-63 in the next two, and so on.
    const Bytes bytes = quarters + group / 8 * 32 + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) {
      out[16 * group + j] = group_scale * static_cast<float>(bytes[j] >> shift & 3) - group_minimum;
    }
  }
}

/// Third bits [32], two-bit numbers [64], 16 six-bit scales [12], scale.
void q3_k(Bytes block, float* out) {
  const Bytes thirds = block;
  const Bytes quarters = block + 32;
  const Bytes scales = block + 96;
  const float scale = read_half(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    const Bytes bytes = quarters + group / 8 * 32 + group % 2 * 16;
    const Bytes masks = thirds + group % 2 * 16;
    const int shift = group % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) {
      const int third = masks[j] >> (group / 2) & 1;
      out[16 * group + j] = group_scale * static_cast<float>((bytes[j] >> shift & 3) + 4 * third - 4);
    }
  }
}

struct ScaleAndMinimum {
  int scale, minimum;
};

/// Eight scales and eight minima of six bits in twelve bytes: the first four of each stand whole in bytes 0-3 and 4-7, whose
/// two upper bits complete the last four, which have their lower halves in bytes 8-11.
ScaleAndMinimum six_bit(Bytes scales, int group) {
  if (group < 4) return {scales[group] & 63, scales[group + 4] & 63};
  return {(scales[group + 4] & 15) | scales[group - 4] >> 6 << 4, scales[group + 4] >> 4 | scales[group] >> 6 << 4};
}

/// Scale, minimum, six-bit scales and minima [12], four-bit numbers [128].
void q4_k(Bytes block, float* out) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum six = six_bit(block + 4, group);
    const float group_scale = scale * static_cast<float>(six.scale);
    const float group_minimum = minimum * static_cast<float>(six.minimum);
    const Bytes bytes = block + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      out[32 * group + j] = group_scale * static_cast<float>(bytes[j] >> shift & 15) - group_minimum;
    }
  }
}

/// Scale, minimum, six-bit scales and minima [12], fifth bits [32], four-bit numbers [128].
void q5_k(Bytes block, float* out) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const Bytes fifths = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum six = six_bit(block + 4, group);
    const float group_scale = scale * static_cast<float>(six.scale);
    const float group_minimum = minimum * static_cast<float>(six.minimum);
    const Bytes bytes = block + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      const int number = (bytes[j] >> shift & 15) | (fifths[j] >> group & 1) << 4;
      out[32 * group + j] = group_scale * static_cast<float>(number) - group_minimum;
    }
  }
}

/// Lower four bits [128], upper two bits [64], 16 eight-bit scales, scale.
void q6_k(Bytes block, float* out) {
  const float scale = read_half(block + 208);
  for (int group = 0; group < 16; ++group) {
    const int half = group / 8;         // 128 numbers each
    const int quarter = group % 8 / 2;  // 32 numbers each
    const int column = group % 2 * 16;
    const Bytes low = block + 64 * half + quarter % 2 * 32 + column;
    const Bytes high = block + 128 + 32 * half + column;
    const float group_scale = scale * static_cast<float>(static_cast<std::int8_t>(block[192 + group]));
    for (int j = 0; j < 16; ++j) {
      const int number = (low[j] >> (quarter / 2 * 4) & 15) | (high[j] >> (2 * quarter) & 3) << 4;
      out[16 * group + j] = group_scale * static_cast<float>(number - 32);
    }
  }
}

template <void decode(Bytes, float*)>
void each_block(const GgmlLayout& layout, Bytes at, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(layout.block), at += layout.block_bytes) {
    decode(at, out.data() + i);
  }
}

void encode_q8_0(const float* values, std::uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(values[j]));
  const std::uint16_t half = half_from_float(largest / 127);
  const float scale = float_from_half(half);
  const float inverse = scale > 0 ? 1 / scale : 0;
  std::memcpy(block, &half, 2);
  for (int j = 0; j < 32; ++j) {
    const float rounded = std::clamp(std::nearbyint(values[j] * inverse), -127.0f, 127.0f);
    block[2 + j] = static_cast<std::uint8_t>(static_cast<std::int8_t>(rounded));
  }
}

void pack_halves(std::uint8_t* packed, const std::uint8_t (&numbers)[32]) {
  for (int j = 0; j < 16; ++j) packed[j] = static_cast<std::uint8_t>(numbers[j] | numbers[j + 16] << 4);
}

/// The number of largest magnitude, with its sign, becomes -8, the end of the range that has one step more.
void encode_q4_0(const float* values, std::uint8_t* block) {
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::abs(values[j]) > std::abs(extreme)) extreme = values[j];
  }
  const std::uint16_t half = half_from_float(extreme / -8);
  const float scale = float_from_half(half);
  const float inverse = scale != 0 ? 1 / scale : 0;
  std::uint8_t numbers[32];
  for (int j = 0; j < 32; ++j) {
    numbers[j] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(values[j] * inverse) + 8, 0.0f, 15.0f));
  }
  std::memcpy(block, &half, 2);
  pack_halves(block + 2, numbers);
}

void encode_q4_1(const float* values, std::uint8_t* block) {
  const auto [least, most] = std::minmax_element(values, values + 32);
  const std::uint16_t half_scale = half_from_float((*most - *least) / 15);
  const std::uint16_t half_minimum = half_from_float(*least);
  const float scale = float_from_half(half_scale);
  const float minimum = float_from_half(half_minimum);
  const float inverse = scale > 0 ? 1 / scale : 0;
  std::uint8_t numbers[32];
  for (int j = 0; j < 32; ++j) {
    numbers[j] = static_cast<std::uint8_t>(std::clamp(std::nearbyint((values[j] - minimum) * inverse), 0.0f, 15.0f));
  }
  std::memcpy(block, &half_scale, 2);
  std::memcpy(block + 2, &half_minimum, 2);
  pack_halves(block + 4, numbers);
}

template <void encode(const float*, std::uint8_t*)>
void encode_blocks(const GgmlLayout& layout, std::span<const float> values, std::uint8_t* out) {
  for (const float value : values) {
    // Scales are halves, so this bound holds for every block format.
    if (!(std::abs(value) <= 65504.0f)) fail("the number {} cannot be written as {}", value, layout.name);
  }
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(layout.block), out += layout.block_bytes) {
    encode(values.data() + i, out);
  }
}

/// Blocks that `numbers` numbers make; a fault of the caller if they and the bytes do not fit.
void check_sizes(const GgmlLayout& layout, std::size_t numbers, std::size_t bytes) {
  const auto block = static_cast<std::size_t>(layout.block);
  if (numbers % block != 0 || numbers / block * static_cast<std::size_t>(layout.block_bytes) != bytes) {
    throw std::logic_error("quantised blocks: counts of numbers and bytes are at odds");
  }
}

}  // namespace

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> out) {
  const GgmlLayout& layout = layout_of(type);
  check_sizes(layout, out.size(), blocks.size());
  if (out.empty()) return;
  const auto* at = reinterpret_cast<Bytes>(blocks.data());
  switch (type) {
    case GgmlType::f32: std::memcpy(out.data(), at, blocks.size()); break;
    case GgmlType::f16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = read_half(at + 2 * i);
      break;
    case GgmlType::bf16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = float_from_bfloat16(read_u16(at + 2 * i));
      break;
    case GgmlType::q8_0: each_block<q8_0>(layout, at, out); break;
    case GgmlType::q4_0: each_block<q4_0>(layout, at, out); break;
    case GgmlType::q4_1: each_block<q4_1>(layout, at, out); break;
    case GgmlType::q5_0: each_block<q5_0>(layout, at, out); break;
    case GgmlType::q5_1: each_block<q5_1>(layout, at, out); break;
    case GgmlType::q2_k: each_block<q2_k>(layout, at, out); break;
    case GgmlType::q3_k: each_block<q3_k>(layout, at, out); break;
    case GgmlType::q4_k: each_block<q4_k>(layout, at, out); break;
    case GgmlType::q5_k: each_block<q5_k>(layout, at, out); break;
    case GgmlType::q6_k: each_block<q6_k>(layout, at, out); break;
  }
}

void quantize(GgmlType type, std::span<const float> values, std::span<std::byte> out) {
  const GgmlLayout& layout = layout_of(type);
  check_sizes(layout, values.size(), out.size());
  if (values.empty()) return;
  auto* at = reinterpret_cast<std::uint8_t*>(out.data());
  const auto write_u16 = [&](std::size_t i, std::uint16_t value) { std::memcpy(at + 2 * i, &value, 2); };
  switch (type) {
    case GgmlType::f32: std::memcpy(at, values.data(), out.size()); break;
    case GgmlType::f16:
      for (std::size_t i = 0; i < values.size(); ++i) write_u16(i, half_from_float(values[i]));
      break;
    case GgmlType::bf16:
      for (std::size_t i = 0; i < values.size(); ++i) write_u16(i, bfloat16_from_float(values[i]));
      break;
    case GgmlType::q8_0: encode_blocks<encode_q8_0>(layout, values, at); break;
    case GgmlType::q4_0: encode_blocks<encode_q4_0>(layout, values, at); break;
    case GgmlType::q4_1: encode_blocks<encode_q4_1>(layout, values, at); break;
    default: fail("numbers cannot be written as {}; use F32, F16, BF16, Q8_0, Q4_0 or Q4_1", layout.name);
  }
}

}  // namespace kullback
