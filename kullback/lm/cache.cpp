#include "kullback/lm/cache.h"

#include <cstring>
#include <stdexcept>

#include <ATen/ATen.h>

namespace kullback {
namespace {

constexpr int64_t block = 256;  // tokens by which a cache grows at least; it doubles beyond

void grow(at::Tensor& held, int64_t filled, int64_t needed, const at::Tensor& like) {
  if (held.defined() && held.size(0) >= needed) return;
  const int64_t capacity = std::max((needed + block - 1) / block * block, 2 * filled);
  at::Tensor larger = at::empty({capacity, like.size(1), like.size(2)}, like.options());
  if (filled > 0) larger.narrow(0, 0, filled).copy_(held.narrow(0, 0, filled));
  held = larger;
}

void put(at::Tensor& held, int64_t filled, const at::Tensor& added) {
  if (added.is_contiguous() &&
      added.scalar_type() == held.scalar_type()) {  // for a token, an operation costs more than this
    std::memcpy(static_cast<std::byte*>(held.mutable_data_ptr()) +
                    static_cast<size_t>(filled * held.stride(0)) * held.itemsize(),
                added.const_data_ptr(), added.nbytes());
  } else {
    held.narrow(0, filled, added.size(0)).copy_(added);
  }
}

}  // namespace

void KvCache::append(int64_t layer, const at::Tensor& keys, const at::Tensor& values) {
  const int64_t filled = filled_[layer], added = keys.size(0);
  grow(keys_[layer], filled, filled + added, keys);
  grow(values_[layer], filled, filled + added, values);
  put(keys_[layer], filled, keys);
  put(values_[layer], filled, values);
  filled_[layer] += added;
}

void KvCache::truncate(int64_t length) {
  for (int64_t& filled : filled_) {
    if (length < 0 || length > filled) throw std::logic_error("KvCache::truncate: more tokens than it holds");
    filled = length;
  }
}

KvCache KvCache::clone() const {
  KvCache copy = *this;
  for (std::vector<at::Tensor>* tensors : {&copy.keys_, &copy.values_}) {
    for (size_t layer = 0; layer < tensors->size(); ++layer) {
      at::Tensor& tensor = (*tensors)[layer];
      if (tensor.defined()) tensor = tensor.narrow(0, 0, filled_[layer]).clone();
    }
  }
  return copy;
}

}  // namespace kullback
