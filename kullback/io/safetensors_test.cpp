#include "kullback/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kullback/base/error.h"
#include "kullback/io/allocation_test.h"
#include "kullback/io/files.h"

namespace kullback {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Buffer = std::vector<std::byte>;

Buffer file_of(std::string_view header, std::size_t data, std::optional<std::uint64_t> claimed = std::nullopt) {
  const std::uint64_t length = claimed.value_or(header.size());
  Buffer bytes(8 + header.size() + data);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string refusal(const Buffer& bytes) {
  try {
    SafetensorsFile::parse(bytes, "f.safetensors");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(std::string_view header, std::size_t data = 16) { return refusal(file_of(header, data)); }

class Safetensors : public testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / "kullback_safetensors_test.safetensors";
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(Safetensors, ReadsWhatItWrote) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> b{7, 8};
  const std::vector<std::uint8_t> c{9, 10, 11};
  const double scalar = 0.25;
  const std::vector<TensorBytes> tensors{{"c", DType::u8, {3}, std::as_bytes(std::span(c))},
                                         {"a", DType::f32, {2, 3}, std::as_bytes(std::span(a))},
                                         {"empty", DType::f16, {0, 4}, {}},
                                         {"b", DType::i64, {2}, std::as_bytes(std::span(b))},
                                         {"scalar", DType::f64, {}, std::as_bytes(std::span(&scalar, 1))}};
  write_safetensors(path_, tensors, {{"format", "pt"}});
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const TensorBytes& written : tensors) {
    const TensorBytes& read = file.tensor(written.name);
    EXPECT_EQ(read.dtype, written.dtype);
    EXPECT_EQ(read.shape, written.shape);
    EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), written.bytes.begin(), written.bytes.end()))
        << written.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.bytes.data()) % (read.bytes.empty() ? 1 : dtype_bytes(read.dtype)),
              0u)
        << "aligned";
  }
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_THROW(file.tensor("none"), Error);
}

TEST_F(Safetensors, WritesNothingOnError) {
  const std::vector<float> a{1, 2};
  const TensorBytes good{"a", DType::f32, {2}, std::as_bytes(std::span(a))};
  TensorBytes bad = good;
  bad.shape = {3};
  EXPECT_THROW(write_safetensors(path_, std::vector{good, good}), Error);
  EXPECT_THROW(write_safetensors(path_, std::vector{bad}), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST(SafetensorsLies, AboutTheHeader) {
  EXPECT_THAT(refusal(Buffer(7)), HasSubstr("too short"));
  EXPECT_THAT(
      refusal(file_of("{}", 0, 3)),
      StartsWith(
          "f.safetensors: not a safetensors file, or cut short: it claims a header of 3 bytes, and 2 bytes follow"));
  EXPECT_THAT(refusal(file_of("{}", 0, ~std::uint64_t{0})), HasSubstr("claims a header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal("{]"), HasSubstr("the safetensors header is not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__ is not an object of strings"));
  EXPECT_EQ(refusal("{}"), "");
  EXPECT_EQ(refusal("{}      "), "") << "padded with spaces";
}

TEST(SafetensorsLies, AboutATensor) {
  EXPECT_EQ(refusal(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})"), "");
  EXPECT_THAT(refusal(R"({"t":7})"), HasSubstr("tensor 't' is not described by a JSON object"));
  EXPECT_THAT(refusal(R"({"t":{"shape":[2],"data_offsets":[0,8]}})"), HasSubstr("tensor 't' has no dtype"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("dtype 'F99', which is not read"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("has no shape"));
  for (const char* shape : {"[-1]", "[2.5]", "[\"2\"]", "[[2]]", "[18446744073709551615]"}) {
    EXPECT_THAT(refusal(std::string(R"({"t":{"dtype":"F32","shape":)") + shape + R"(,"data_offsets":[0,8]}})"),
                HasSubstr("not made of whole numbers"))
        << shape;
  }
  for (const char* offsets : {"[0]", "[0,1,2]", "[0,-8]", "[0,8.0]", "null"}) {
    EXPECT_THAT(refusal(std::string(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":)") + offsets + "}}"),
                HasSubstr("no data_offsets of two whole numbers"))
        << offsets;
  }
}

TEST(SafetensorsLies, AboutOffsets) {
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"),
              HasSubstr("tensor 't' ends at offset 0, before it begins at 8"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})"),
              HasSubstr("ends at offset 24, beyond the file's 16 bytes of data"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})"),
              HasSubstr("beyond the file's"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
              HasSubstr("has 8 bytes, which is not what its shape and dtype F32 make"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}})"), HasSubstr("dtype F64"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]}})"),
              HasSubstr("is not what its shape"))
      << "the product would wrap to 16";
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})"),
      HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(
      refusal(
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
      HasSubstr("overlap"));
}

TEST(SafetensorsLies, AboutNames) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal("{\"t\":" + entry + ",\"t\":" + entry + "}"), HasSubstr("'t' appears twice in the header"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})"),
              HasSubstr("'dtype' appears twice"));
}

TEST(SafetensorsLies, AreFoundInEveryBeginning) {
  const Buffer whole = file_of(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I16","shape":[4],"data_offsets":[8,16]}})",
      16);
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_NE(refusal(Buffer(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))), "") << length;
  }
}

TEST(SafetensorsLies, MutatedFilesAreReadOrRefused) {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I16","shape":[4],"data_offsets":[8,16]}})";
  const Buffer whole = file_of(header, 16);
  const std::string replacements = "0123456789[]{}\",:-eE. \\u";
  std::mt19937_64 random(1);
  std::size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Buffer bytes = whole;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % 3 == 0 ? random() % 8 : random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: bytes.resize(at + 1); break;
        default: bytes[at] = static_cast<std::byte>(replacements[random() % replacements.size()]);
      }
    }
    const AllocationWatch watch;
    try {
      const SafetensorsFile file = SafetensorsFile::parse(bytes, "f");
      std::size_t sum = 0;
      for (const TensorBytes& tensor : file.tensors()) {
        for (const std::byte b : tensor.bytes) sum += static_cast<std::size_t>(b);
      }
      accepted += sum == 0 ? 1 : 1;
    } catch (const Error&) {
    }
    ASSERT_LE(watch.largest(), 32 * bytes.size() + 2000) << round;
    ASSERT_LE(watch.total(), 400 * bytes.size() + 20000) << round;
  }
  EXPECT_GT(accepted, 500u);
}

}  // namespace
}  // namespace kullback
