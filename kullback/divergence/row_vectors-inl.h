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

/// e^x - 1 for |x| <= 0.35, by its series: to the last bit or two.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpMinusOneNearZero(D d, V x) {
  constexpr int terms = sizeof(hn::TFromD<D>) == 4 ? 7 : 13;
  constexpr double inverse_factorial[14] = {
      1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  V sum = Constant(d, inverse_factorial[terms]);
  for (int i = terms - 1; i >= 1; --i) sum = hn::MulAdd(sum, x, Constant(d, inverse_factorial[i]));
  return hn::Mul(sum, x);
}

/// e^x for x <= 0 to the last bit or so, at half the cost of Highway's own for any x; 0 where the result would be no normal
/// number (x < -87 in float32), and for NaN. x = n ln 2 + r, and n goes into the exponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpBelowZero(D d, V x) {
  constexpr bool single = sizeof(hn::TFromD<D>) == 4;
  const hn::RebindToSigned<D> whole;
  const V rounder = Constant(d, single ? 12582912.0 : 6755399441055744.0);  // 1.5 * 2^23, 1.5 * 2^52
  const V shifted = hn::MulAdd(x, Constant(d, 1.4426950408889634074), rounder);
  const V n = hn::Sub(shifted, rounder);
  V r = hn::NegMulAdd(n, Constant(d, single ? 0.693115234375 : 6.93147180369123816490e-01), x);
  r = hn::NegMulAdd(n, Constant(d, single ? 3.194618494530942e-05 : 1.90821492927058770002e-10), r);
  V power;  // e^r, |r| <= ln(2) / 2
  if constexpr (single) {
    // The least relative error that 1 + r + r^2 c(r) of this degree can have there, 3e-9 (found by Remez exchange).
    V c = Constant(d, 0.0013814466938365348);
    c = hn::MulAdd(c, r, Constant(d, 0.008368780409604386));
    c = hn::MulAdd(c, r, Constant(d, 0.04166839421323419));
    c = hn::MulAdd(c, r, Constant(d, 0.16666520107836255));
    c = hn::MulAdd(c, r, Constant(d, 0.4999999341249066));
    power = hn::Add(hn::MulAdd(c, hn::Mul(r, r), r), Constant(d, 1));
  } else {
    power = hn::Add(ExpMinusOneNearZero(d, r), Constant(d, 1));
  }
  const auto exponent = hn::ShiftLeft<(single ? 23 : 52)>(hn::BitCast(whole, shifted));
  const V result = hn::BitCast(d, hn::Add(hn::BitCast(whole, power), exponent));
  return hn::IfThenElseZero(hn::Ge(x, Constant(d, single ? -87 : -708)), result);
}

/// ln(1 + x) for -1 < x <= 0, to the last bit or two, cheaper than Highway's own for any x.
/// 1 + x = 2^n m, m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh((m - 1) / (m + 1)) by its series.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1pBelowZero(D d, V x) {
  constexpr bool single = sizeof(hn::TFromD<D>) == 4;
  constexpr int mantissa = single ? 23 : 52;
  constexpr int terms = single ? 4 : 10;
  const hn::RebindToSigned<D> whole;
  const V one = Constant(d, 1);
  const auto bits = hn::BitCast(whole, hn::Add(one, x));
  const auto root = hn::BitCast(whole, Constant(d, 0.70710678118654752440));
  const auto n = hn::ShiftRight<mantissa>(hn::Sub(bits, root));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<mantissa>(n)));
  const V t = hn::IfThenElse(hn::RebindMask(d, hn::Eq(n, hn::Zero(whole))), x, hn::Sub(m, one));  // m - 1
  const V s = hn::Div(t, hn::Add(t, Constant(d, 2)));
  const V square = hn::Mul(s, s);
  V sum = Constant(d, 2.0 / (2 * terms + 1));
  for (int k = terms - 1; k >= 0; --k) sum = hn::MulAdd(sum, square, Constant(d, 2.0 / (2 * k + 1)));
  return hn::MulAdd(hn::ConvertTo(d, n), Constant(d, 0.69314718055994530942), hn::Mul(s, sum));
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
