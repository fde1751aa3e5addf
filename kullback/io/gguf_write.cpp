#include "kullback/io/gguf_write.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/io/in_quotes.h"

namespace kullback {
namespace {

constexpr std::size_t alignment = 32;

std::size_t padding_after(std::size_t size) { return (alignment - size % alignment) % alignment; }

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

void put_array_head(std::string& out, GgufType type, std::size_t count) {
  put(out, static_cast<std::uint32_t>(type));
  put<std::uint64_t>(out, count);
}

std::size_t bytes_of_tensor(const GgufTensor& tensor) {
  const GgmlLayout& layout = layout_of(tensor.type);
  return static_cast<std::size_t>(tensor.elements / layout.block * layout.block_bytes);
}

void check_bytes(const GgufTensor& tensor, std::span<const std::byte> bytes) {
  if (bytes.size() != bytes_of_tensor(tensor))
    throw std::logic_error("GgufWriter: tensor of the wrong size: " + tensor.name);
}

}  // namespace

std::string& GgufWriter::begin_pair(std::string_view key, GgufType type) {
  ++pair_count_;
  put_string(pairs_, key);
  put(pairs_, static_cast<std::uint32_t>(type));
  return pairs_;
}

void GgufWriter::add(std::string_view key, std::string_view value) {
  put_string(begin_pair(key, GgufType::string), value);
}
void GgufWriter::add(std::string_view key, bool value) {
  put<std::uint8_t>(begin_pair(key, GgufType::boolean), value ? 1 : 0);
}
void GgufWriter::add(std::string_view key, std::uint32_t value) { put(begin_pair(key, GgufType::u32), value); }
void GgufWriter::add(std::string_view key, std::int32_t value) { put(begin_pair(key, GgufType::i32), value); }
void GgufWriter::add(std::string_view key, std::uint64_t value) { put(begin_pair(key, GgufType::u64), value); }
void GgufWriter::add(std::string_view key, float value) { put(begin_pair(key, GgufType::f32), value); }

void GgufWriter::add(std::string_view key, std::span<const std::string> values) {
  std::string& out = begin_pair(key, GgufType::array);
  put_array_head(out, GgufType::string, values.size());
  for (const std::string& value : values) put_string(out, value);
}

void GgufWriter::add(std::string_view key, std::span<const std::int32_t> values) {
  std::string& out = begin_pair(key, GgufType::array);
  put_array_head(out, GgufType::i32, values.size());
  for (const std::int32_t value : values) put(out, value);
}

void GgufWriter::add(std::string_view key, std::span<const float> values) {
  std::string& out = begin_pair(key, GgufType::array);
  put_array_head(out, GgufType::f32, values.size());
  for (const float value : values) put(out, value);
}

void GgufWriter::add(std::string_view key, const GgufValue& value) {
  std::string& out = begin_pair(key, value.is_array ? GgufType::array : value.type);
  if (value.is_array) put_array_head(out, value.type, value.count);
  if (!value.is_array && value.type == GgufType::string) put<std::uint64_t>(out, value.bytes.size());
  out.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}

void GgufWriter::add_tensor(std::string name, std::vector<std::int64_t> shape, GgmlType type) {
  const auto same_name = [&](const GgufTensor& other) { return other.name == name; };
  if (std::any_of(tensors_.begin(), tensors_.end(), same_name)) fail("tensor {} appears twice", in_quotes(name));
  if (shape.empty() || shape.size() > 4)
    fail("tensor {} has {} dimensions, and GGUF tensors have 1 to 4", in_quotes(name), shape.size());
  std::int64_t elements = 1;
  for (const std::int64_t length : shape) {
    if (length <= 0) fail("tensor {} has a dimension of {}", in_quotes(name), length);
    elements *= length;
  }
  const GgmlLayout& layout = layout_of(type);
  if (shape.back() % layout.block != 0) {
    fail("rows of tensor {} have {} numbers, which are not whole {} blocks of {}", in_quotes(name), shape.back(),
         layout.name, layout.block);
  }
  tensors_.push_back({std::move(name), std::move(shape), type, elements, {}});
}

std::string GgufWriter::head() const {
  std::string out = "GGUF";
  put<std::uint32_t>(out, 3);
  put<std::uint64_t>(out, tensors_.size());
  put<std::uint64_t>(out, pair_count_);
  out += pairs_;
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors_) {
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto length = tensor.shape.rbegin(); length != tensor.shape.rend(); ++length)
      put<std::uint64_t>(out, static_cast<std::uint64_t>(*length));
    put(out, static_cast<std::uint32_t>(tensor.type));
    put(out, offset);
    offset += bytes_of_tensor(tensor);
    offset += padding_after(offset);
  }
  out.append(padding_after(out.size()), '\0');
  return out;
}

void GgufWriter::write(const std::filesystem::path& path, const Bytes& bytes_of) const {
  NewFile file(path);
  file.append(head());
  for (const GgufTensor& tensor : tensors_) {
    const auto bytes = bytes_of(tensor);
    check_bytes(tensor, bytes);
    file.append(bytes);
    file.append(std::string(padding_after(bytes.size()), '\0'));
  }
  file.commit();
}

std::vector<std::byte> GgufWriter::bytes(const Bytes& bytes_of) const {
  std::vector<std::byte> out;
  const auto append = [&](std::span<const std::byte> more) { out.insert(out.end(), more.begin(), more.end()); };
  const std::string beginning = head();
  append(std::as_bytes(std::span(beginning)));
  for (const GgufTensor& tensor : tensors_) {
    const auto bytes = bytes_of(tensor);
    check_bytes(tensor, bytes);
    append(bytes);
    out.resize(out.size() + padding_after(out.size()));
  }
  return out;
}

}  // namespace kullback
