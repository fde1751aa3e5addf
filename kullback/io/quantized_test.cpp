#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/io/ggml_type.h"
#include "kullback/io/half.h"

namespace kullback {
namespace {

using Block = std::vector<std::uint8_t>;

float half_at(const Block& b, std::size_t at) {
  return float_from_half(static_cast<std::uint16_t>(b[at] + 256 * b[at + 1]));
}

int bit(const Block& b, std::size_t from, std::size_t index) { return b[from + index / 8] / (1 << index % 8) % 2; }

/// Number k of a block, straight from where its bits lie: one number at a time, without the groups that the decoders walk.
float number(GgmlType type, const Block& b, std::size_t k) {
  const auto nibble = [&](std::size_t byte, bool high) { return high ? b[byte] / 16 : b[byte] % 16; };
  const auto six = [&](std::size_t from, bool minimum, std::size_t group) {  // the packed scales of Q4_K and Q5_K
    const std::size_t shift = minimum ? 4 : 0;
    if (group < 4) return b[from + shift + group] % 64;
    return nibble(from + 4 + group, minimum) + 16 * (b[from + shift + group - 4] / 64);
  };
  switch (type) {
    case GgmlType::q8_0: return half_at(b, 0) * static_cast<float>(b[2 + k] < 128 ? b[2 + k] : b[2 + k] - 256);
    case GgmlType::q4_0: return half_at(b, 0) * static_cast<float>(nibble(2 + k % 16, k >= 16) - 8);
    case GgmlType::q4_1: return half_at(b, 0) * static_cast<float>(nibble(4 + k % 16, k >= 16)) + half_at(b, 2);
    case GgmlType::q5_0:
      return half_at(b, 0) * static_cast<float>(nibble(6 + k % 16, k >= 16) + 16 * bit(b, 2, k) - 16);
    case GgmlType::q5_1:
      return half_at(b, 0) * static_cast<float>(nibble(8 + k % 16, k >= 16) + 16 * bit(b, 4, k)) + half_at(b, 2);
    case GgmlType::q2_k: {
      const int two = b[16 + 32 * (k / 128) + k % 32] / (1 << 2 * (k % 128 / 32)) % 4;
      return half_at(b, 80) * static_cast<float>(b[k / 16] % 16) * static_cast<float>(two) -
             half_at(b, 82) * static_cast<float>(b[k / 16] / 16);
    }
    case GgmlType::q3_k: {
      const std::size_t g = k / 16;
      const int low = nibble(96 + g % 8, g >= 8);
      const int high = b[104 + g % 4] / (1 << 2 * (g / 4)) % 4;
      const int two = b[32 + 32 * (k / 128) + k % 32] / (1 << 2 * (k % 128 / 32)) % 4;
      const int third = b[k % 32] / (1 << k / 32) % 2;
      return half_at(b, 108) * static_cast<float>(low + 16 * high - 32) * static_cast<float>(two + 4 * third - 4);
    }
    case GgmlType::q4_k:
      return half_at(b, 0) * static_cast<float>(six(4, false, k / 32)) *
                 static_cast<float>(nibble(16 + 32 * (k / 64) + k % 32, k / 32 % 2 == 1)) -
             half_at(b, 2) * static_cast<float>(six(4, true, k / 32));
    case GgmlType::q5_k: {
      const int five = nibble(48 + 32 * (k / 64) + k % 32, k / 32 % 2 == 1) + 16 * (b[16 + k % 32] / (1 << k / 32) % 2);
      return half_at(b, 0) * static_cast<float>(six(4, false, k / 32)) * static_cast<float>(five) -
             half_at(b, 2) * static_cast<float>(six(4, true, k / 32));
    }
    case GgmlType::q6_k: {
      const std::size_t in_half = k % 128;
      const int low = nibble(64 * (k / 128) + in_half % 64, in_half >= 64);
      const int high = b[128 + 32 * (k / 128) + k % 32] / (1 << 2 * (in_half / 32)) % 4;
      const int scale = b[192 + k / 16] < 128 ? b[192 + k / 16] : b[192 + k / 16] - 256;
      return half_at(b, 208) * static_cast<float>(scale) * static_cast<float>(low + 16 * high - 32);
    }
    default: ADD_FAILURE(); return 0;
  }
}

std::vector<std::size_t> places_of_halves(GgmlType type) {
  switch (type) {
    case GgmlType::q2_k: return {80, 82};
    case GgmlType::q3_k: return {108};
    case GgmlType::q6_k: return {208};
    case GgmlType::q4_1:
    case GgmlType::q5_1:
    case GgmlType::q4_k:
    case GgmlType::q5_k: return {0, 2};
    default: return {0};
  }
}

TEST(Dequantize, EveryNumberOfRandomBlocksIsWhereTheFormatPutsIt) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  for (const GgmlLayout& layout : ggml_layouts()) {
    if (layout.block == 1) continue;
    for (int round = 0; round < 50; ++round) {
      Block block(static_cast<std::size_t>(layout.block_bytes));
      for (auto& byte : block) byte = static_cast<std::uint8_t>(random());
      for (const std::size_t at : places_of_halves(layout.type)) {
        const std::uint16_t half = half_from_float(normal(random));
        std::memcpy(block.data() + at, &half, 2);
      }
      std::vector<float> out(static_cast<std::size_t>(layout.block));
      dequantize(layout.type, std::as_bytes(std::span(block)), out);
      for (std::size_t k = 0; k < out.size(); ++k) {
        const float expected = number(layout.type, block, k);
        ASSERT_NEAR(out[k], expected, 1e-6 * (1 + std::abs(expected))) << layout.name << " " << k;
      }
    }
  }
}

Json fixture() {
  std::ifstream file(KULLBACK_FIXTURES "/gguf_blocks.json");
  return Json::parse(file);
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(Dequantize, EqualsThePythonPackageGguf) {
  const Json all = fixture();
  EXPECT_EQ(all["cases"].size(), 12u);
  for (const Json& one : all["cases"]) {
    const auto type = ggml_type(one["type"].get<std::string>());
    ASSERT_TRUE(type.has_value());
    const auto expected = one["values"].get<std::vector<float>>();
    std::vector<float> out(expected.size());
    dequantize(*type, from_hex(one["bytes"].get<std::string>()), out);
    for (std::size_t k = 0; k < out.size(); ++k)
      ASSERT_NEAR(out[k], expected[k], 1e-6 * (1 + std::abs(expected[k]))) << one["type"] << k;
  }
}

std::vector<std::byte> quantized(GgmlType type, std::span<const float> values) {
  const GgmlLayout& layout = layout_of(type);
  std::vector<std::byte> bytes(values.size() / static_cast<std::size_t>(layout.block) *
                               static_cast<std::size_t>(layout.block_bytes));
  quantize(type, values, bytes);
  return bytes;
}

std::vector<float> there_and_back(GgmlType type, std::span<const float> values) {
  std::vector<float> out(values.size());
  dequantize(type, quantized(type, values), out);
  return out;
}

float largest_error(std::span<const float> a, std::span<const float> b) {
  float error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) error = std::max(error, std::abs(a[i] - b[i]));
  return error;
}

TEST(Quantize, IsNoWorseThanThePythonPackageGguf) {
  const Json all = fixture();
  for (const Json& one : all["written"]) {
    const auto values = one["values"].get<std::vector<float>>();
    const auto type = ggml_type(one["type"].get<std::string>());
    EXPECT_LE(largest_error(values, there_and_back(*type, values)), 1.02f * one["error"].get<float>()) << one["type"];
  }
}

TEST(Quantize, ErrsByHalfAStepAtMost) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 100; ++round) {
    std::vector<float> values(64);
    const float spread = std::exp(4 * normal(random));
    for (float& value : values) value = spread * normal(random);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const float magnitude = std::max(-*least, *most);
    EXPECT_LE(largest_error(values, there_and_back(GgmlType::q8_0, values)),
              magnitude / 127 * 0.51f + magnitude * 1e-3f);
    EXPECT_LE(largest_error(values, there_and_back(GgmlType::q4_1, values)),
              (*most - *least) / 15 * 0.51f + magnitude * 2e-3f);
    // Q4_0 reaches one step less on the side that the largest number is not on.
    EXPECT_LE(largest_error(values, there_and_back(GgmlType::q4_0, values)), magnitude / 8 * 1.01f);
  }
}

TEST(Quantize, KeepsWhatABlockCanHold) {
  std::vector<float> values(32);
  for (std::size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(i % 16) - 8;
  EXPECT_EQ(there_and_back(GgmlType::q4_0, values), values);
  EXPECT_EQ(there_and_back(GgmlType::q4_1, values), values);
  values[0] = -127;
  EXPECT_EQ(there_and_back(GgmlType::q8_0, values), values);
  const std::vector<float> zeros(32);
  for (const auto type : {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q8_0})
    EXPECT_EQ(there_and_back(type, zeros), zeros);
}

TEST(Quantize, RefusesNumbersThatAreNone) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 1e9f}) {
    std::vector<float> values(32, 1.0f);
    values[7] = bad;
    for (const auto type : {GgmlType::q4_0, GgmlType::q4_1, GgmlType::q8_0})
      EXPECT_THROW(quantized(type, values), Error);
  }
  EXPECT_THROW(quantized(GgmlType::q6_k, std::vector<float>(256)), Error);
}

TEST(Half, ConvertsEveryValueThereAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_from_half(half);
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value) && std::isnan(float_from_half(half_from_float(value))));
      continue;
    }
    const double magnitude = exponent == 31  ? INFINITY
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value, half & 0x8000 ? -magnitude : magnitude) << bits;
    ASSERT_EQ(half_from_float(value), half);
    ASSERT_EQ(bfloat16_from_float(float_from_bfloat16(half)), half) << "bfloat16";
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(half_from_float(1.0f + 0x1p-11f), half_from_float(1.0f)) << "a tie goes to the even neighbour";
  EXPECT_EQ(half_from_float(1.0f + 3 * 0x1p-11f), half_from_float(1.0f + 0x1p-9f));
  EXPECT_EQ(float_from_half(half_from_float(65519.0f)), 65504.0f);
  EXPECT_EQ(float_from_half(half_from_float(65520.0f)), INFINITY);
  EXPECT_EQ(float_from_half(half_from_float(0x1p-25f)), 0.0f);
  EXPECT_EQ(float_from_half(half_from_float(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(float_from_half(half_from_float(-1e-7f)), -0x1p-23f);
  EXPECT_EQ(float_from_bfloat16(bfloat16_from_float(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(float_from_bfloat16(bfloat16_from_float(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(float_from_bfloat16(bfloat16_from_float(std::nanf("")))));
}

TEST(GgmlTypes, AreFoundByNameAndNumber) {
  for (const GgmlLayout& layout : ggml_layouts()) {
    EXPECT_EQ(ggml_type(layout.name), layout.type);
    EXPECT_EQ(ggml_type(static_cast<std::uint32_t>(layout.type)), layout.type);
  }
  EXPECT_EQ(ggml_type("q8_0"), GgmlType::q8_0);
  EXPECT_EQ(ggml_type("Q8"), std::nullopt);
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(999), "");
}

}  // namespace
}  // namespace kullback
