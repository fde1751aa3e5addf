#include "kullback/lm/read.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kullback/base/error.h"

namespace kullback {
namespace {

at::ScalarType scalar_type(const std::string& source, const TensorBytes& tensor) {
  switch (tensor.dtype) {
    case DType::f64: return at::kDouble;
    case DType::f32: return at::kFloat;
    case DType::f16: return at::kHalf;
    case DType::bf16: return at::kBFloat16;
    default:
      fail("{}: tensor '{}' holds {}, which is not a type of weights", source, tensor.name, dtype_name(tensor.dtype));
  }
}

// Those of the model's matrices that are among `parts`. What they were is freed with `parts`.
void keep_matrices(Transformer& model, const std::vector<at::Tensor>& parts, WeightType type) {
  for_each_matrix(model, [&](at::Tensor& matrix) {
    const bool read =
        std::any_of(parts.begin(), parts.end(), [&](const at::Tensor& part) { return part.is_same(matrix); });
    if (read) matrix = kept_as(matrix, type);
  });
}

}  // namespace

Transformer shapes_alone(const Config& config) {
  return empty_transformer(config, at::TensorOptions(at::kFloat).device(at::kMeta));
}

Transformer read_weights(const Config& config, const Layout& layout, at::ScalarType dtype, const WeightSource& source,
                         WeightType kept) {
  for (const StoredTensor& stored : stored_tensors(shapes_alone(config), layout)) {
    check_shape(source.name, source.stored_name(stored.name), source.shape(stored.name), stored_shape(stored));
  }
  Transformer model = empty_transformer(config, dtype);
  for (StoredTensor& next : stored_tensors(model, layout)) {
    const StoredTensor stored = std::move(next);
    at::Tensor whole = is_plain(stored) ? stored.parts[0] : at::empty(stored_shape(stored), at::TensorOptions(dtype));
    source.read(stored.name, whole);
    check_finite(source.name, source.stored_name(stored.name), whole);
    if (!is_plain(stored)) unpack(whole, stored);
    if (kept != WeightType::float32) keep_matrices(model, stored.parts, kept);
  }
  return model;
}

std::set<std::string> stored_names(const Config& config, const Layout& layout) {
  std::set<std::string> names;
  for (const StoredTensor& stored : stored_tensors(shapes_alone(config), layout)) names.insert(stored.name);
  return names;
}

void check_finite(const std::string& source, const std::string& name, const at::Tensor& tensor) {
  constexpr int64_t piece = 1 << 20;
  const at::Tensor flat = tensor.view({-1});
  for (int64_t i = 0; i < flat.size(0); i += piece) {
    if (!at::isfinite(flat.narrow(0, i, std::min(piece, flat.size(0) - i))).all().item<bool>()) {
      fail("{}: tensor '{}' holds NaN or infinity", source, name);
    }
  }
}

void read_tensor(const std::string& source, const TensorBytes& tensor, at::Tensor& into) {
  const at::ScalarType type = scalar_type(source, tensor);
  const std::byte* bytes = tensor.bytes.data();
  std::vector<std::byte> aligned;
  if (reinterpret_cast<uintptr_t>(bytes) % dtype_bytes(tensor.dtype) != 0) {
    aligned.assign(tensor.bytes.begin(), tensor.bytes.end());
    bytes = aligned.data();
  }
  // The blob is only read; from_blob has no const form.
  into.copy_(at::from_blob(const_cast<std::byte*>(bytes), into.sizes(), at::TensorOptions(type)));
}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(mapped.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace kullback
