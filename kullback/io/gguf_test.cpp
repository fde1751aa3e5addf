#include "kullback/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "kullback/base/error.h"
#include "kullback/io/allocation_test.h"
#include "kullback/io/files.h"
#include "kullback/io/gguf_write.h"

namespace kullback {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Buffer = std::vector<std::byte>;

/// A GGUF file put together field by field, so that each can lie.
class Raw {
 public:
  Raw& text(std::string_view bytes) {
    for (const char c : bytes) buffer_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  template <class T>
  Raw& put(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Raw& u32(std::uint32_t value) { return put(value); }
  Raw& u64(std::uint64_t value) { return put(value); }
  Raw& string(std::string_view value) { return u64(value.size()).text(value); }
  Raw& head(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    return text("GGUF").u32(version).u64(tensors).u64(pairs);
  }
  Raw& tensor(std::string_view name, std::vector<std::uint64_t> dimensions, std::uint32_t type, std::uint64_t offset) {
    string(name).u32(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t d : dimensions) u64(d);
    return u32(type).u64(offset);
  }
  Raw& data(std::size_t bytes) {
    buffer_.resize((buffer_.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  const Buffer& bytes() const { return buffer_; }

 private:
  Buffer buffer_;
};

std::string refusal(const Buffer& bytes) {
  try {
    GgufFile::parse(bytes, "f.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const Raw& raw) { return refusal(raw.bytes()); }

/// A small file with every kind of value and several types of tensor.
Buffer small_file() {
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  writer.add("llama.block_count", std::uint32_t{2});
  writer.add("a.big", std::uint64_t{1} << 63);
  writer.add("a.negative", std::int32_t{-5});
  writer.add("a.float", 0.5f);
  writer.add("a.flag", true);
  const std::vector<std::string> tokens{"a", "", "ccc"};
  writer.add("tokens", std::span<const std::string>(tokens));
  const std::vector<std::int32_t> types{1, 2, 3};
  writer.add("types", std::span<const std::int32_t>(types));
  const std::vector<float> scores{0.5f, -1.0f};
  writer.add("scores", std::span<const float>(scores));
  writer.add_tensor("first", {3, 32}, GgmlType::q8_0);
  writer.add_tensor("second", {5}, GgmlType::f32);
  writer.add_tensor("third", {2, 2, 64}, GgmlType::q4_1);
  Buffer bytes;
  return writer.bytes([&](const GgufTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 16);
    const GgmlLayout& layout = layout_of(tensor.type);
    bytes.resize(static_cast<std::size_t>(tensor.elements / layout.block * layout.block_bytes));
    quantize(tensor.type, values, bytes);
    return std::span<const std::byte>(bytes);
  });
}

/// Reads all there is, as a loader would.
void read_everything(const GgufFile& file) {
  std::vector<float> numbers;
  for (const GgufTensor& tensor : file.tensors()) {
    numbers.resize(static_cast<std::size_t>(tensor.elements));
    dequantize(tensor, numbers);
  }
  for (const auto& [key, value] : file.metadata().values()) {
    const auto quietly = [](const auto& get) {
      try {
        get();
      } catch (const Error&) {  // another type
      }
    };
    quietly([&] { file.metadata().string(key); });
    quietly([&] { file.metadata().integer(key); });
    quietly([&] { file.metadata().number(key); });
    quietly([&] { file.metadata().boolean(key); });
    quietly([&] { file.metadata().strings(key); });
    quietly([&] { file.metadata().integers(key); });
    quietly([&] { file.metadata().numbers(key); });
  }
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  const Buffer bytes = small_file();
  const GgufFile file = GgufFile::parse(bytes, "f.gguf");
  const GgufMetadata& metadata = file.metadata();
  EXPECT_EQ(file.version(), 3);
  EXPECT_EQ(metadata.string("general.architecture"), "llama");
  EXPECT_EQ(metadata.integer("llama.block_count"), 2);
  EXPECT_EQ(metadata.integer("a.negative"), -5);
  EXPECT_EQ(metadata.number("a.float"), 0.5);
  EXPECT_EQ(metadata.number("llama.block_count"), 2.0);
  EXPECT_TRUE(metadata.boolean("a.flag"));
  EXPECT_THAT(metadata.strings("tokens"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(metadata.integers("types"), ElementsAre(1, 2, 3));
  EXPECT_THAT(metadata.numbers("scores"), ElementsAre(0.5, -1.0));
  EXPECT_TRUE(metadata.is_array("types") && !metadata.is_array("a.flag") && !metadata.is_array("none"));

  ASSERT_EQ(file.tensors().size(), 3u);
  const GgufTensor& third = file.tensor("third");
  EXPECT_THAT(third.shape, ElementsAre(2, 2, 64)) << "outermost first";
  EXPECT_EQ(third.elements, 256);
  EXPECT_EQ(third.type, GgmlType::q4_1);
  std::vector<float> numbers(256);
  dequantize(third, numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<float>(i % 16));
  EXPECT_EQ(file.find("fourth"), nullptr);
}

TEST(Gguf, GettersSayWhatIsWrong) {
  const Buffer bytes = small_file();
  const GgufFile file = GgufFile::parse(bytes, "f.gguf");
  const GgufMetadata& m = file.metadata();
  const auto message = [](const auto& get) -> std::string {
    try {
      get();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { m.string("absent"); }), "f.gguf: the metadata has no key 'absent'");
  EXPECT_EQ(message([&] { m.string("a.flag"); }), "f.gguf: metadata key 'a.flag' is not a string");
  EXPECT_THAT(message([&] { m.integer("a.float"); }), HasSubstr("'a.float' is not a whole number"));
  EXPECT_THAT(message([&] { m.integer("a.big"); }), HasSubstr("'a.big' is not a whole number of at most 63 bits"));
  EXPECT_THAT(message([&] { m.integer("types"); }), HasSubstr("'types' is not a whole number"));
  EXPECT_THAT(message([&] { m.strings("types"); }), HasSubstr("is not an array of strings"));
  EXPECT_THAT(message([&] { m.integers("scores"); }), HasSubstr("is not an array of whole numbers"));
  EXPECT_THAT(message([&] { m.boolean("a.float"); }), HasSubstr("is not true or false"));
  EXPECT_THAT(message([&] { file.tensor("none"); }), HasSubstr("f.gguf: has no tensor 'none'"));
  EXPECT_EQ(m.number("a.big"), 0x1p63);
  EXPECT_EQ(m.string("absent", "x"), "x");
  EXPECT_EQ(m.integer("absent", 7), 7);
  EXPECT_THAT(message([&] { m.integer("a.flag", 7); }), HasSubstr("is not a whole number"))
      << "a fallback is for what is absent";
}

// reports.md, kind 7: every lie gets a message that names it.
TEST(Gguf, RefusesSizesThatWrapAround) {
  constexpr std::uint64_t wraps = (std::uint64_t{1} << 42) + 1;  // times 2^22 numbers wraps a 64-bit count of bytes
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {wraps, std::uint64_t{1} << 22}, 0, 0).data(64)),
              AllOf(HasSubstr("f.gguf: dimension 0 of tensor 't' is 4398046511105"),
                    HasSubstr("more than the file could hold")));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {32, wraps}, 0, 0).data(64)),
              HasSubstr("dimension 1 of tensor 't'"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {~std::uint64_t{0}}, 0, 0).data(64)),
              HasSubstr("more than the file could hold"));
}

TEST(Gguf, RefusesDimensionsThatThereCannotBe) {
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {4, 0}, 0, 0).data(64)),
              HasSubstr("dimension 1 of tensor 't' is zero"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0).data(64)),
              HasSubstr("tensor 't' has 9 dimensions"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {}, 0, 0).data(64)), HasSubstr("tensor 't' has 0 dimensions"));
  EXPECT_THAT(refusal(Raw().head(1, 0).string("t").u32(0xffffffff).data(64)), HasSubstr("4294967295 dimensions"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {33}, 8, 0).data(64)),
              HasSubstr("rows of tensor 't' have 33 numbers, which are not whole Q8_0 blocks of 32"));
}

TEST(Gguf, RefusesAlignmentsThatAreNone) {
  const auto with = [](std::uint32_t alignment) {
    return refusal(Raw().head(1, 1).string("general.alignment").u32(4).u32(alignment).tensor("t", {4}, 0, 0).data(64));
  };
  EXPECT_EQ(with(32), "");
  EXPECT_EQ(with(8), "");
  for (const std::uint32_t bad : {0u, 3u, 33u, 0xffffffffu})
    EXPECT_THAT(with(bad), HasSubstr("must be a power of two")) << bad;
  EXPECT_THAT(with(1u << 31), HasSubstr("cut short or damaged: tensor 't'")) << "the data would begin beyond the end";
  EXPECT_THAT(refusal(Raw().head(0, 1).string("general.alignment").u32(6).put(32.0f)),
              HasSubstr("is not a whole number"));
}

TEST(Gguf, RefusesLengthsBeyondTheEnd) {
  EXPECT_THAT(refusal(Raw().head(0, 1).u64(1000).text("key").data(64)),
              AllOf(HasSubstr("metadata key 0"), HasSubstr("cut short or damaged")));
  EXPECT_THAT(refusal(Raw().head(0, 1).u64(~std::uint64_t{0}).data(64)), HasSubstr("metadata key 0"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(8).u64(std::uint64_t{1} << 60).text("x")),
              HasSubstr("metadata key 'k' at byte"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(9).u32(4).u64(std::uint64_t{1} << 60)),
              HasSubstr("metadata key 'k' claims 1152921504606846976 elements"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(9).u32(4).u64((std::uint64_t{1} << 62) + 1).data(64)),
              HasSubstr("claims"))
      << "times 4 would wrap";
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(9).u32(8).u64(2).string("ok").u64(99)),
              HasSubstr("metadata key 'k' at byte"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  const std::uint64_t huge = std::uint64_t{1} << 60;
  EXPECT_THAT(refusal(Raw().head(0, huge).data(64)),
              HasSubstr("claims 1152921504606846976 metadata keys, more than its"));
  EXPECT_THAT(refusal(Raw().head(huge, 0).data(64)), HasSubstr("claims 1152921504606846976 tensors"));
}

TEST(Gguf, RefusesOffsetsThatLeadNowhere) {
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {4}, 0, 4096).data(64)),
              HasSubstr("tensor 't' needs 16 bytes at offset 4096"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {4}, 0, ~std::uint64_t{31}).data(64)),
              HasSubstr("cut short or damaged"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {4}, 0, 4).data(64)),
              HasSubstr("offset 4, not a multiple of the alignment 32"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {32}, 0, 0).data(64)),
              HasSubstr("needs 128 bytes at offset 0 of the data, which has 64 bytes"));
  EXPECT_THAT(refusal(Raw().head(2, 0).tensor("t", {16}, 0, 0).tensor("u", {4}, 0, 32).data(128)),
              HasSubstr("tensors 't' and 'u' overlap"));
  EXPECT_THAT(refusal(Raw().head(2, 0).tensor("t", {4}, 0, 0).tensor("u", {4}, 0, 0).data(128)), HasSubstr("overlap"));
}

TEST(Gguf, RefusesNamesThatRepeatOrAreMissing) {
  EXPECT_THAT(refusal(Raw().head(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).data(128)),
              HasSubstr("tensor 't' appears twice"));
  EXPECT_THAT(refusal(Raw().head(0, 2).string("k").u32(7).text("\1").string("k").u32(7).text("\1")),
              HasSubstr("metadata key 'k' appears twice"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("", {4}, 0, 0).data(128)), HasSubstr("tensor 0 has no name"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("").u32(7).text("\1")), HasSubstr("metadata key 0 is empty"));
}

TEST(Gguf, RefusesTypesThatItDoesNotKnow) {
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {256}, 16, 0).data(128)),
              HasSubstr("tensor 't' has type 16 (IQ2_XXS), which is not read"));
  EXPECT_THAT(refusal(Raw().head(1, 0).tensor("t", {256}, 777, 0).data(128)),
              HasSubstr("tensor 't' has type 777, which is not read"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(13).u64(0)),
              HasSubstr("metadata key 'k' has the unknown type 13"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(9).u32(99).u64(0)), HasSubstr("unknown type 99"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(9).u32(9).u64(1).data(64)), HasSubstr("array of arrays"));
  EXPECT_THAT(refusal(Raw().head(0, 1).string("k").u32(7).text("\2")), HasSubstr("neither true nor false"));
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_THAT(refusal(Raw().text("GGML and more text")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(Raw().text("GG")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(Raw().head(0, 0, 1)), HasSubstr("GGUF version 1, and only versions 2 and 3 are read"));
  EXPECT_THAT(refusal(Raw().head(0, 0, 0x03000000)), HasSubstr("big-endian"));
  EXPECT_EQ(refusal(Raw().head(0, 0, 2)), "");
}

TEST(Gguf, PrintsNamesFitToRead) {
  const std::string message =
      refusal(Raw().head(1, 0).tensor(std::string("a\x1b[31m\n", 7) + std::string(500, 'x'), {4, 0}, 0, 0).data(64));
  EXPECT_THAT(message, HasSubstr("'a\\x1b[31m\\x0axxx"));
  EXPECT_LT(message.size(), 200u);
}

TEST(Gguf, RefusesEveryBeginningOfAFile) {
  const Buffer whole = small_file();
  EXPECT_EQ(refusal(whole), "");
  const GgufFile file = GgufFile::parse(whole, "f.gguf");
  const std::byte* end_of_data = nullptr;
  for (const GgufTensor& tensor : file.tensors())
    end_of_data = std::max(end_of_data, tensor.bytes.data() + tensor.bytes.size());
  const auto needed = static_cast<std::size_t>(end_of_data - whole.data());
  for (std::size_t length = 0; length < needed; ++length) {
    // A copy of its own, so that a sanitizer sees a read past the end.
    const Buffer part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_NE(refusal(part), "") << length;
  }
}

TEST(Gguf, WithstandsMutation) {
  const Buffer whole = small_file();
  std::mt19937_64 random(42);
  const std::uint64_t interesting[] = {0,
                                       1,
                                       2,
                                       7,
                                       8,
                                       9,
                                       0x7f,
                                       0xff,
                                       0xffff,
                                       0x7fffffff,
                                       0xffffffff,
                                       std::uint64_t{1} << 42,
                                       (std::uint64_t{1} << 42) + 1,
                                       std::uint64_t{1} << 60,
                                       ~std::uint64_t{0},
                                       ~std::uint64_t{31},
                                       std::uint64_t{1} << 63};
  std::size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Buffer bytes = whole;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] ^= static_cast<std::byte>(1 << random() % 8); break;
        case 1: bytes[at] = static_cast<std::byte>(random()); break;
        case 2: {
          const std::uint64_t value = interesting[random() % std::size(interesting)];
          std::memcpy(bytes.data() + at, &value, std::min<std::size_t>(8, bytes.size() - at));
          break;
        }
        default: bytes.resize(at + 1);
      }
    }
    const AllocationWatch watch;
    try {
      const GgufFile file = GgufFile::parse(bytes, "f.gguf");
      read_everything(file);
      ++accepted;
    } catch (const Error&) {
    }
    ASSERT_LE(watch.largest(), 32 * bytes.size() + 1000) << round;
    ASSERT_LE(watch.total(), 200 * bytes.size() + 20000) << round;
  }
  EXPECT_GT(accepted, 1000u) << "or the mutations hardly reach what lies behind the header";
}

TEST(Gguf, OpensFiles) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "kullback_gguf_test.gguf";
  const Buffer bytes = small_file();
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::optional<GgufFile> copy;
  {
    const GgufFile file = GgufFile::open(path);
    copy = file;
  }
  EXPECT_EQ(copy->tensor("second").elements, 5) << "the mapping lives as long as the last copy";
  std::vector<float> numbers(5);
  dequantize(copy->tensor("second"), numbers);
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3, 4));
  std::filesystem::remove(path);
  EXPECT_THROW(GgufFile::open(path), Error);
}

TEST(GgufWriter, CopiesMetadataOfAnotherFile) {
  const Buffer bytes = small_file();
  const GgufFile file = GgufFile::parse(bytes, "f.gguf");
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata().values()) writer.add(key, value);
  const Buffer copied = writer.bytes([](const GgufTensor&) { return std::span<const std::byte>(); });
  const GgufFile copy = GgufFile::parse(copied, "copy.gguf");
  EXPECT_EQ(copy.metadata().values().size(), file.metadata().values().size());
  EXPECT_THAT(copy.metadata().strings("tokens"), ElementsAre("a", "", "ccc"));
  EXPECT_EQ(copy.metadata().string("general.architecture"), "llama");
}

TEST(GgufWriter, RefusesTensorsThatNoReaderTakes) {
  GgufWriter writer;
  writer.add_tensor("t", {4}, GgmlType::f32);
  EXPECT_THROW(writer.add_tensor("t", {4}, GgmlType::f32), Error);
  EXPECT_THROW(writer.add_tensor("u", {}, GgmlType::f32), Error);
  EXPECT_THROW(writer.add_tensor("u", {1, 1, 1, 1, 1}, GgmlType::f32), Error);
  EXPECT_THROW(writer.add_tensor("u", {0}, GgmlType::f32), Error);
  EXPECT_THROW(writer.add_tensor("u", {40}, GgmlType::q4_0), Error);
}

TEST(SlowGguf, DequantisesTheRealModel) {
  const GgufFile file = GgufFile::open(cache_folder() / "models" / "smollm2-135m-instruct.gguf");
  EXPECT_EQ(file.metadata().string("general.architecture"), "llama");
  EXPECT_EQ(file.tensors().size(), 272u);
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  EXPECT_THAT(embedding.shape, ElementsAre(49152, 576));
  EXPECT_EQ(embedding.type, GgmlType::q8_0);
  std::vector<float> numbers;
  for (const GgufTensor& tensor : file.tensors()) {
    numbers.resize(static_cast<std::size_t>(tensor.elements));
    dequantize(tensor, numbers);
    double squares = 0;
    for (const float x : numbers) squares += double{x} * x;
    const double spread = std::sqrt(squares / static_cast<double>(numbers.size()));
    EXPECT_TRUE(spread > 1e-3 && spread < 20) << tensor.name << " " << spread;
  }
}

}  // namespace
}  // namespace kullback
