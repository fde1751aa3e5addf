// What the row kernels share; included once for each instruction set.
#if defined(KULLBACK_ROW_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KULLBACK_ROW_VECTORS_INL_H_
#undef KULLBACK_ROW_VECTORS_INL_H_
#else
#define KULLBACK_ROW_VECTORS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kullback/divergence/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kullback::detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> Constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

/// float32 lanes are summed over so many tokens at most, then carried in float64.
constexpr int64_t kChunk = 1024;

template <class T>
HWY_INLINE T MinusInfinity() {
  return -std::numeric_limits<T>::infinity();
}

/// Calls step(vector at j) for the whole vectors of [first, last), then last_step(j, tokens left) if some are left.
template <class T, class Step, class LastStep>
HWY_INLINE void ForVectors(int64_t first, int64_t last, Step step, LastStep last_step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t j = first;
  for (; j + lanes <= last; j += lanes) step(j);
  if (j < last) last_step(j, last - j);
}

/// The last tokens of a row as a whole vector, -inf beyond its end: tokens that no law holds.
template <class T>
struct Tail {
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];

  HWY_INLINE Tail(const T* from, int64_t count, T filler) {
    std::fill(std::begin(lanes), std::end(lanes), filler);
    std::copy(from, from + count, lanes);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace kullback::detail
HWY_AFTER_NAMESPACE();

#endif  // KULLBACK_ROW_VECTORS_INL_H_
