#include "kullback/lm/describe.h"

#include <algorithm>
#include <set>

#include "kullback/base/error.h"
#include "kullback/io/gguf.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

void add(std::vector<StoredType>& types, const std::string& name, int64_t numbers, size_t bytes) {
  auto found = std::find_if(types.begin(), types.end(), [&](const StoredType& type) { return type.name == name; });
  if (found == types.end()) found = types.insert(types.end(), StoredType{.name = name});
  ++found->tensors;
  found->numbers += numbers;
  found->bytes += static_cast<int64_t>(bytes);
}

void read_folder_types(const std::filesystem::path& folder, std::vector<StoredType>& types) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) files.insert(entry.path());
  }
  for (const std::filesystem::path& path : files) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const TensorBytes& tensor : file.tensors()) {
      int64_t numbers = 1;
      for (const int64_t length : tensor.shape) numbers *= length;
      add(types, std::string(dtype_name(tensor.dtype)), numbers, tensor.bytes.size());
    }
  }
}

}  // namespace

ModelDescription describe_model(const std::string& name_or_path) {
  const std::filesystem::path path = resolve_model(name_or_path);
  ModelDescription description;
  if (std::filesystem::is_directory(path)) {
    description.format = "Hugging Face folder";
    description.model = read_folder(path, at::kFloat, /*with_weights=*/false);
    read_folder_types(path, description.types);
  } else {
    const GgufFile file = GgufFile::open(path);
    description.format = fmt::format("GGUF version {}", file.version());
    description.model = read_gguf(path, at::kFloat, /*with_weights=*/false);
    for (const GgufTensor& tensor : file.tensors())
      add(description.types, std::string(layout_of(tensor.type).name), tensor.elements, tensor.bytes.size());
  }
  description.model.name = name_or_path;
  const Config& config = description.model.config();
  description.parameters = description.model.transformer.parameter_count();
  description.float32_bytes = 4 * description.parameters;
  description.bfloat16_bytes = description.int8_bytes = description.float32_bytes;
  for_each_matrix(description.model.transformer, [&](at::Tensor& matrix) {
    description.bfloat16_bytes += kept_bytes(matrix, WeightType::bfloat16) - kept_bytes(matrix, WeightType::float32);
    description.int8_bytes += kept_bytes(matrix, WeightType::int8) - kept_bytes(matrix, WeightType::float32);
  });
  description.cache_bytes_a_token = 2 * 4 * config.layers * config.key_value_heads * config.head_size;
  return description;
}

}  // namespace kullback
