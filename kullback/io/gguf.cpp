#include "kullback/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/io/in_quotes.h"

namespace kullback {
namespace {

/// Bytes of a number of that type; 0 for strings and arrays, whose size varies.
std::size_t width_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

bool is_float(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

bool is_whole(GgufType type) {
  return !is_float(type) && type != GgufType::boolean && type != GgufType::string && type != GgufType::array;
}

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<std::int64_t> whole(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::u8: return read<std::uint8_t>(at);
    case GgufType::i8: return read<std::int8_t>(at);
    case GgufType::u16: return read<std::uint16_t>(at);
    case GgufType::i16: return read<std::int16_t>(at);
    case GgufType::u32: return read<std::uint32_t>(at);
    case GgufType::i32: return read<std::int32_t>(at);
    case GgufType::i64: return read<std::int64_t>(at);
    case GgufType::u64: {
      const auto value = read<std::uint64_t>(at);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> real(GgufType type, const std::byte* at) {
  if (type == GgufType::f32) return read<float>(at);
  if (type == GgufType::f64) return read<double>(at);
  if (type == GgufType::u64) return static_cast<double>(read<std::uint64_t>(at));
  if (const auto value = whole(type, at)) return static_cast<double>(*value);
  return std::nullopt;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool GgufMetadata::is_array(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.is_array;
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) fail("{}: the metadata has no key {}", file_, in_quotes(key));
  return found->second;
}

void GgufMetadata::wrong_type(std::string_view key, std::string_view wanted) const {
  fail("{}: metadata key {} is not {}", file_, in_quotes(key), wanted);
}

const GgufValue& GgufMetadata::scalar(std::string_view key, std::string_view wanted) const {
  const GgufValue& value = at(key);
  if (value.is_array) wrong_type(key, wanted);
  return value;
}

const GgufValue& GgufMetadata::array(std::string_view key, std::string_view wanted) const {
  const GgufValue& value = at(key);
  if (!value.is_array) wrong_type(key, wanted);
  return value;
}

std::string GgufMetadata::string(std::string_view key) const {
  const GgufValue& value = scalar(key, "a string");
  if (value.type != GgufType::string) wrong_type(key, "a string");
  return text_of(value.bytes);
}

std::int64_t GgufMetadata::integer(std::string_view key) const {
  constexpr auto wanted = "a whole number of at most 63 bits";
  const GgufValue& value = scalar(key, wanted);
  const auto number = whole(value.type, value.bytes.data());
  if (!number) wrong_type(key, wanted);
  return *number;
}

double GgufMetadata::number(std::string_view key) const {
  const GgufValue& value = scalar(key, "a number");
  const auto number = real(value.type, value.bytes.data());
  if (!number) wrong_type(key, "a number");
  return *number;
}

bool GgufMetadata::boolean(std::string_view key) const {
  const GgufValue& value = scalar(key, "true or false");
  if (value.type != GgufType::boolean) wrong_type(key, "true or false");
  return value.bytes[0] != std::byte{0};
}

std::vector<std::string> GgufMetadata::strings(std::string_view key) const {
  const GgufValue& value = array(key, "an array of strings");
  if (value.type != GgufType::string) wrong_type(key, "an array of strings");
  std::vector<std::string> out;
  out.reserve(value.count);
  const std::byte* at = value.bytes.data();
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto length = read<std::uint64_t>(at);
    out.push_back(text_of({at + 8, length}));
    at += 8 + length;
  }
  return out;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  constexpr auto wanted = "an array of whole numbers of at most 63 bits";
  const GgufValue& value = array(key, wanted);
  if (!is_whole(value.type)) wrong_type(key, wanted);
  std::vector<std::int64_t> out;
  out.reserve(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    const auto number = whole(value.type, value.bytes.data() + i * width_of(value.type));
    if (!number) wrong_type(key, wanted);
    out.push_back(*number);
  }
  return out;
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue& value = array(key, "an array of numbers");
  if (!is_whole(value.type) && !is_float(value.type)) wrong_type(key, "an array of numbers");
  std::vector<double> out;
  out.reserve(value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    out.push_back(*real(value.type, value.bytes.data() + i * width_of(value.type)));
  }
  return out;
}

std::string GgufMetadata::string(std::string_view key, std::string_view fallback) const {
  return contains(key) ? string(key) : std::string(fallback);
}
std::int64_t GgufMetadata::integer(std::string_view key, std::int64_t fallback) const {
  return contains(key) ? integer(key) : fallback;
}
double GgufMetadata::number(std::string_view key, double fallback) const {
  return contains(key) ? number(key) : fallback;
}
bool GgufMetadata::boolean(std::string_view key, bool fallback) const {
  return contains(key) ? boolean(key) : fallback;
}

/// Walks the file once from front to back. Nothing is allocated before its bytes are known to be there.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string name) : bytes_(bytes) {
    file_.name_ = std::move(name);
    file_.metadata_.file_ = file_.name_;
  }

  GgufFile parse() {
    read_header();
    for (std::uint64_t i = 0; i < values_; ++i) read_pair(i);
    for (std::uint64_t i = 0; i < tensors_; ++i) read_tensor(i);
    place_tensors();
    return std::move(file_);
  }

 private:
  std::size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) {
      fail("{}: cut short or damaged: {} at byte {} needs {} bytes, and {} are left", file_.name_, what, at_, count,
           left());
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }

  template <class T>
  T take_number(std::string_view what) {
    return read<T>(take(sizeof(T), what).data());
  }

  std::span<const std::byte> take_string(std::string_view what) {
    const auto length = take_number<std::uint64_t>(what);
    return take(length, what);
  }

  void read_header() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      fail("{}: not a GGUF file (it does not begin with \"GGUF\")", file_.name_);
    }
    at_ = 4;
    const auto version = take_number<std::uint32_t>("the version");
    if ((version & 0xffffu) == 0 && version != 0) fail("{}: a big-endian GGUF file, which is not read", file_.name_);
    if (version != 2 && version != 3) {
      fail("{}: GGUF version {}, and only versions 2 and 3 are read", file_.name_, version);
    }
    file_.version_ = static_cast<int>(version);
    tensors_ = take_number<std::uint64_t>("the number of tensors");
    values_ = take_number<std::uint64_t>("the number of metadata keys");
    // The smallest entries there can be: a key of no letters with a one-byte value, a nameless tensor of one dimension.
    check_count(values_, 8 + 4 + 1, "metadata keys");
    check_count(tensors_, 8 + 4 + 8 + 4 + 8, "tensors");
  }

  void check_count(std::uint64_t count, std::uint64_t least_bytes, std::string_view what) const {
    if (count > left() / least_bytes) {
      fail("{}: cut short or damaged: it claims {} {}, more than its {} bytes could hold", file_.name_, count, what,
           bytes_.size());
    }
  }

  GgufType take_type(const std::string& what) {
    const auto number = take_number<std::uint32_t>(what);
    if (number > static_cast<std::uint32_t>(GgufType::f64)) {
      fail("{}: {} has the unknown type {}", file_.name_, what, number);
    }
    return static_cast<GgufType>(number);
  }

  void read_pair(std::uint64_t index) {
    std::string key = text_of(take_string(fmt::format("metadata key {}", index)));
    if (key.empty()) fail("{}: metadata key {} is empty", file_.name_, index);
    const std::string what = "metadata key " + in_quotes(key);
    const GgufType type = take_type(what);
    GgufValue value = type == GgufType::array ? take_array(what) : take_scalar(type, what);
    if (!file_.metadata_.values_.emplace(std::move(key), value).second) fail("{}: {} appears twice", file_.name_, what);
  }

  GgufValue take_scalar(GgufType type, const std::string& what) {
    GgufValue value{type, false, 1, {}};
    value.bytes = type == GgufType::string ? take_string(what) : take(width_of(type), what);
    if (type == GgufType::boolean) check_booleans(value.bytes, what);
    return value;
  }

  GgufValue take_array(const std::string& what) {
    GgufValue value{take_type(what), true, 0, {}};
    value.count = take_number<std::uint64_t>(what);
    if (value.type == GgufType::array) fail("{}: {} is an array of arrays, which is not read", file_.name_, what);
    const std::size_t least = value.type == GgufType::string ? 8 : width_of(value.type);
    if (value.count > left() / least) {
      fail("{}: cut short or damaged: {} claims {} elements, and {} bytes are left", file_.name_, what, value.count,
           left());
    }
    if (value.type != GgufType::string) {
      value.bytes = take(value.count * least, what);
      if (value.type == GgufType::boolean) check_booleans(value.bytes, what);
      return value;
    }
    const std::size_t begin = at_;
    for (std::uint64_t i = 0; i < value.count; ++i) take_string(what);
    value.bytes = bytes_.subspan(begin, at_ - begin);
    return value;
  }

  void check_booleans(std::span<const std::byte> bytes, const std::string& what) const {
    const bool fine = std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; });
    if (!fine) fail("{}: {} is neither true nor false", file_.name_, what);
  }

  void read_tensor(std::uint64_t index) {
    GgufTensor tensor;
    tensor.name = text_of(take_string(fmt::format("the name of tensor {}", index)));
    const std::string what = "tensor " + in_quotes(tensor.name);
    if (tensor.name.empty()) fail("{}: tensor {} has no name", file_.name_, index);
    if (!file_.places_.emplace(tensor.name, index).second) fail("{}: {} appears twice", file_.name_, what);

    const auto dimensions = take_number<std::uint32_t>(what);
    if (dimensions < 1 || dimensions > 4) {
      fail("{}: {} has {} dimensions, and GGUF tensors have 1 to 4", file_.name_, what, dimensions);
    }
    tensor.elements = 1;
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const auto length = take_number<std::uint64_t>(what);
      if (length == 0) fail("{}: dimension {} of {} is zero", file_.name_, d, what);
      // Even one bit a number is more than the file has, beyond this; it also keeps the product from wrapping around.
      if (length > 8 * bytes_.size() / static_cast<std::uint64_t>(tensor.elements)) {
        fail("{}: dimension {} of {} is {}, more than the file could hold", file_.name_, d, what, length);
      }
      tensor.elements *= static_cast<std::int64_t>(length);
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(length));
    }

    const auto number = take_number<std::uint32_t>(what);
    const auto type = ggml_type(number);
    if (!type) {
      const std::string_view known = ggml_type_name(number);
      fail("{}: {} has type {}{}, which is not read", file_.name_, what, number,
           known.empty() ? "" : fmt::format(" ({})", known));
    }
    tensor.type = *type;
    const GgmlLayout& layout = layout_of(*type);
    if (tensor.shape.back() % layout.block != 0) {
      fail("{}: rows of {} have {} numbers, which are not whole {} blocks of {}", file_.name_, what,
           tensor.shape.back(), layout.name, layout.block);
    }
    offsets_.push_back(take_number<std::uint64_t>(what));
    file_.tensors_.push_back(std::move(tensor));
  }

  std::uint64_t alignment() const {
    const std::int64_t value = file_.metadata_.integer("general.alignment", 32);
    if (value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(value))) {
      fail("{}: general.alignment is {}, and must be a power of two", file_.name_, value);
    }
    return static_cast<std::uint64_t>(value);
  }

  void place_tensors() {
    const std::uint64_t align = alignment();
    const std::uint64_t padding = (align - at_ % align) % align;
    const std::uint64_t begin = padding <= left() ? at_ + padding : bytes_.size();
    const auto data = bytes_.subspan(begin);
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      const GgmlLayout& layout = layout_of(tensor.type);
      const auto size = static_cast<std::uint64_t>(tensor.elements / layout.block * layout.block_bytes);
      if (offsets_[i] % align != 0) {
        fail("{}: tensor {} begins at offset {}, not a multiple of the alignment {}", file_.name_,
             in_quotes(tensor.name), offsets_[i], align);
      }
      if (offsets_[i] > data.size() || size > data.size() - offsets_[i]) {
        fail("{}: cut short or damaged: tensor {} needs {} bytes at offset {} of the data, which has {} bytes",
             file_.name_, in_quotes(tensor.name), size, offsets_[i], data.size());
      }
      tensor.bytes = data.subspan(offsets_[i], size);
      order.emplace_back(offsets_[i], i);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = file_.tensors_[order[i - 1].second];
      if (order[i - 1].first + before.bytes.size() > order[i].first) {
        fail("{}: tensors {} and {} overlap", file_.name_, in_quotes(before.name),
             in_quotes(file_.tensors_[order[i].second].name));
      }
    }
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t tensors_ = 0, values_ = 0;
  std::vector<std::uint64_t> offsets_;
  GgufFile file_;
};

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  return GgufParser(bytes, std::move(name)).parse();
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  MappedFile file = MappedFile::open(path);
  GgufFile parsed = parse(file.bytes(), path.string());
  parsed.file_ = std::move(file);
  return parsed;
}

const GgufTensor* GgufFile::find(std::string_view tensor_name) const {
  const auto found = places_.find(tensor_name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(std::string_view tensor_name) const {
  const GgufTensor* found = find(tensor_name);
  if (found == nullptr) fail("{}: has no tensor {}", name_, in_quotes(tensor_name));
  return *found;
}

void dequantize(const GgufTensor& tensor, std::span<float> out) { dequantize(tensor.type, tensor.bytes, out); }

}  // namespace kullback
