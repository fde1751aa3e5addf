#include "kullback/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/io/files.h"
#include "kullback/io/in_quotes.h"

namespace kullback {
namespace {

struct DTypeLayout {
  DType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<DTypeLayout, 10> dtypes{{{DType::f64, "F64", 8},
                                              {DType::f32, "F32", 4},
                                              {DType::f16, "F16", 2},
                                              {DType::bf16, "BF16", 2},
                                              {DType::i64, "I64", 8},
                                              {DType::i32, "I32", 4},
                                              {DType::i16, "I16", 2},
                                              {DType::i8, "I8", 1},
                                              {DType::u8, "U8", 1},
                                              {DType::boolean, "BOOL", 1}}};

constexpr std::uint64_t longest_header = 100'000'000;  // the reference reader's own limit

// Sorted objects: with ordered ones a long header would take time in the square of its keys.
using Header = nlohmann::json;

/// Parses the header, refusing an object that names one key twice, of which JSON libraries silently keep the last.
Header parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto watch = [&](int, Header::parse_event_t event, Header& value) {
    if (event == Header::parse_event_t::object_start) open.emplace_back();
    if (event == Header::parse_event_t::object_end) open.pop_back();
    if (event == Header::parse_event_t::key && !open.back().insert(value.get<std::string>()).second &&
        repeated.empty()) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  Header header;
  try {
    header = Header::parse(text, watch);
  } catch (const nlohmann::json::exception&) {
    fail("{}: the safetensors header is not JSON", file);
  }
  if (!repeated.empty()) fail("{}: {} appears twice in the header", file, in_quotes(repeated));
  if (!header.is_object()) fail("{}: the safetensors header is not a JSON object", file);
  return header;
}

SafetensorsMetadata read_metadata(const Header& value, const std::string& file) {
  SafetensorsMetadata metadata;
  const bool fine =
      value.is_object() && std::all_of(value.begin(), value.end(), [](const Header& v) { return v.is_string(); });
  if (!fine) fail("{}: __metadata__ is not an object of strings", file);
  for (const auto& [key, text] : value.items()) metadata[key] = text.get<std::string>();
  return metadata;
}

std::vector<std::int64_t> read_shape(const Header& entry, const std::string& what) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) fail("{} has no shape", what);
  std::vector<std::int64_t> sizes;
  for (const Header& size : *shape) {
    if (!size.is_number_integer() || (size.is_number_unsigned() && size.get<std::uint64_t>() >> 63 != 0) ||
        size.get<std::int64_t>() < 0) {
      fail("{} has a shape that is not made of whole numbers", what);
    }
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

std::pair<std::uint64_t, std::uint64_t> read_offsets(const Header& entry, const std::string& what) {
  const auto offsets = entry.find("data_offsets");
  const bool fine = offsets != entry.end() && offsets->is_array() && offsets->size() == 2 &&
                    (*offsets)[0].is_number_unsigned() && (*offsets)[1].is_number_unsigned();
  if (!fine) fail("{} has no data_offsets of two whole numbers", what);
  return {(*offsets)[0].get<std::uint64_t>(), (*offsets)[1].get<std::uint64_t>()};
}

/// Bytes that a tensor of that shape takes, or nothing if they would not fit in 64 bits.
std::optional<std::uint64_t> bytes_of(std::span<const std::int64_t> shape, DType type) {
  std::uint64_t bytes = dtype_bytes(type);
  for (const std::int64_t size : shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

TensorBytes read_tensor(const std::string& name, const Header& entry, std::span<const std::byte> data,
                        const std::string& file) {
  const std::string what = file + ": tensor " + in_quotes(name);
  if (!entry.is_object()) fail("{} is not described by a JSON object", what);
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) fail("{} has no dtype", what);
  const auto type = dtype_of(dtype->get_ref<const std::string&>());
  if (!type) fail("{} has dtype {}, which is not read", what, in_quotes(dtype->get_ref<const std::string&>()));

  TensorBytes tensor{name, *type, read_shape(entry, what), {}};
  const auto [begin, end] = read_offsets(entry, what);
  if (begin > end) fail("{} ends at offset {}, before it begins at {}", what, end, begin);
  if (end > data.size()) fail("{} ends at offset {}, beyond the file's {} bytes of data", what, end, data.size());
  const auto wanted = bytes_of(tensor.shape, *type);
  if (wanted != end - begin) {
    fail("{} has {} bytes, which is not what its shape and dtype {} make", what, end - begin, dtype_name(*type));
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

void check_overlaps(std::span<const TensorBytes> in_order, const std::string& file) {
  const TensorBytes* before = nullptr;
  for (const TensorBytes& tensor : in_order) {
    if (tensor.bytes.empty()) continue;
    if (before != nullptr && before->bytes.data() + before->bytes.size() > tensor.bytes.data()) {
      fail("{}: tensors {} and {} overlap", file, in_quotes(before->name), in_quotes(tensor.name));
    }
    before = &tensor;
  }
}

}  // namespace

std::string_view dtype_name(DType type) { return dtypes[static_cast<std::size_t>(type)].name; }
std::size_t dtype_bytes(DType type) { return dtypes[static_cast<std::size_t>(type)].bytes; }

std::optional<DType> dtype_of(std::string_view name) {
  for (const DTypeLayout& layout : dtypes) {
    if (layout.name == name) return layout.type;
  }
  return std::nullopt;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  if (bytes.size() < 8) fail("{}: {} bytes, too short for a safetensors file", file.name_, bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8 || length > longest_header) {
    fail("{}: not a safetensors file, or cut short: it claims a header of {} bytes, and {} bytes follow", file.name_,
         length, bytes.size() - 8);
  }
  const auto text = bytes.subspan(8, length);
  const auto data = bytes.subspan(8 + length);
  const Header header = parse_header({reinterpret_cast<const char*>(text.data()), text.size()}, file.name_);
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      file.metadata_ = read_metadata(entry, file.name_);
    } else {
      file.tensors_.push_back(read_tensor(key, entry, data, file.name_));
    }
  }
  std::stable_sort(file.tensors_.begin(), file.tensors_.end(),
                   [](const TensorBytes& a, const TensorBytes& b) { return a.bytes.data() < b.bytes.data(); });
  check_overlaps(file.tensors_, file.name_);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.places_.emplace(file.tensors_[i].name, i);
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile mapped = MappedFile::open(path);
  SafetensorsFile file = parse(mapped.bytes(), path.string());
  file.file_ = std::move(mapped);
  return file;
}

const TensorBytes* SafetensorsFile::find(std::string_view tensor_name) const {
  const auto found = places_.find(tensor_name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

const TensorBytes& SafetensorsFile::tensor(std::string_view tensor_name) const {
  const TensorBytes* found = find(tensor_name);
  if (found == nullptr) fail("{}: has no tensor {}", name_, in_quotes(tensor_name));
  return *found;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // Readers want the data without holes, so widest numbers first keep every tensor aligned to its own width.
  std::vector<const TensorBytes*> order;
  for (const TensorBytes& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorBytes* a, const TensorBytes* b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  std::uint64_t offset = 0;
  for (const TensorBytes* tensor : order) {
    if (bytes_of(tensor->shape, tensor->dtype) != tensor->bytes.size()) {
      fail("{}: tensor {} has {} bytes, which is not what its shape and dtype {} make", path.string(),
           in_quotes(tensor->name), tensor->bytes.size(), dtype_name(tensor->dtype));
    }
    if (header.contains(tensor->name)) fail("{}: tensor {} appears twice", path.string(), in_quotes(tensor->name));
    header[tensor->name] = {{"dtype", dtype_name(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + tensor->bytes.size()}}};
    offset += tensor->bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data then begins at a multiple of 8
  const std::uint64_t length = text.size();

  NewFile file(path);
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(text);
  for (const TensorBytes* tensor : order) file.append(tensor->bytes);
  file.commit();
}

}  // namespace kullback
