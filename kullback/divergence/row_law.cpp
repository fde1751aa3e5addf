#include "kullback/divergence/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kullback/divergence/row_law.cpp"
#include "kullback/divergence/row_targets.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kullback/divergence/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kullback::detail {
namespace HWY_NAMESPACE {

template <class D, class T = hn::TFromD<D>, class V = hn::Vec<D>>
HWY_INLINE V Transformed(D d, V z, V bias, const Transform<T>& transform) {
  z = hn::Add(z, bias);
  if (transform.softcap > 0) {
    const V limit = Constant(d, 30);  // tanh is 1 to the last bit there, and NaN passes both comparisons
    V x = hn::Mul(z, Constant(d, 1 / transform.softcap));
    x = hn::IfThenElse(hn::Gt(x, limit), limit, x);
    x = hn::IfThenElse(hn::Lt(x, hn::Neg(limit)), hn::Neg(limit), x);
    z = hn::Mul(hn::Tanh(d, x), Constant(d, transform.softcap));
  }
  return hn::Mul(z, Constant(d, 1 / transform.temperature));
}

template <class T>
void TransformRange(T* row, int64_t first, int64_t last, const Transform<T>& transform) {
  const hn::ScalableTag<T> d;
  ForVectors<T>(
      first, last,
      [&](int64_t j) HWY_ATTR {
        const auto bias = transform.bias ? hn::LoadU(d, transform.bias + j) : hn::Zero(d);
        hn::StoreU(Transformed(d, hn::LoadU(d, row + j), bias, transform), d, row + j);
      },
      [&](int64_t j, int64_t count) HWY_ATTR {
        Tail<T> tail(row + j, count, T(0));
        auto bias = hn::Zero(d);
        if (transform.bias) bias = hn::Load(d, Tail<T>(transform.bias + j, count, T(0)).lanes);
        hn::Store(Transformed(d, hn::Load(d, tail.lanes), bias, transform), d, tail.lanes);
        std::copy(tail.lanes, tail.lanes + count, row + j);
      });
}

template <class T>
void TransformRow(T* row, int64_t size, const Transform<T>& transform) {
  if (!transform.identity()) TransformRange(row, 0, size, transform);
}

/// The largest and the smallest logit of a chunk; NaN when one is NaN.
template <class T>
HWY_INLINE void Extremes(const T* row, int64_t first, int64_t last, T& largest, T& smallest) {
  const hn::ScalableTag<T> d;
  auto high = hn::Set(d, row[first]);
  auto low = high;
  auto other_high = high;
  auto other_low = high;
  auto ordered = hn::Eq(high, high);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = first;
  for (; j + 2 * lanes <= last; j += 2 * lanes) {
    const auto z = hn::LoadU(d, row + j);
    const auto y = hn::LoadU(d, row + j + lanes);
    high = hn::Max(high, z);
    low = hn::Min(low, z);
    other_high = hn::Max(other_high, y);
    other_low = hn::Min(other_low, y);
    ordered = hn::And(ordered, hn::And(hn::Eq(z, z), hn::Eq(y, y)));
  }
  largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high, other_high)));
  smallest = hn::GetLane(hn::MinOfLanes(d, hn::Min(low, other_low)));
  bool whole = hn::AllTrue(d, ordered);
  for (; j < last; ++j) {
    largest = std::max(largest, row[j]);
    smallest = std::min(smallest, row[j]);
    whole = whole && row[j] == row[j];
  }
  if (!whole) largest = smallest = std::numeric_limits<T>::quiet_NaN();
}

struct Sums {
  double weights = 0, weighted_logit = 0, weighted_score = 0;
};

template <bool entropy, bool scored, class T>
Sums SumRange(const T* row, const T* scores, int64_t first, int64_t last, T max) {
  const hn::ScalableTag<T> d;
  const auto top = hn::Set(d, max);
  const auto lowest = hn::Set(d, std::numeric_limits<T>::lowest());  // 0 ln 0 is 0
  auto weights = hn::Zero(d);
  auto more_weights = hn::Zero(d);
  auto logits = hn::Zero(d);
  auto of_scores = hn::Zero(d);
  const auto add = [&](auto z, auto score, auto& sum) HWY_ATTR {
    const auto x = hn::Sub(z, top);
    const auto w = ExpBelowZero(d, x);
    sum = hn::Add(sum, w);
    if constexpr (entropy) logits = hn::MulAdd(w, hn::Max(x, lowest), logits);
    if constexpr (scored) of_scores = hn::MulAdd(w, score, of_scores);
  };
  const auto score_at = [&](int64_t j) HWY_ATTR {
    if constexpr (scored) return hn::LoadU(d, scores + j);
    return hn::Zero(d);
  };
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = first;
  for (; j + 2 * lanes <= last; j += 2 * lanes) {
    add(hn::LoadU(d, row + j), score_at(j), weights);
    add(hn::LoadU(d, row + j + lanes), score_at(j + lanes), more_weights);
  }
  ForVectors<T>(
      j, last, [&](int64_t i) HWY_ATTR { add(hn::LoadU(d, row + i), score_at(i), weights); },
      [&](int64_t i, int64_t count) HWY_ATTR {
        const Tail<T> tail(row + i, count, MinusInfinity<T>());
        auto score = hn::Zero(d);
        if constexpr (scored) score = hn::Load(d, Tail<T>(scores + i, count, T(0)).lanes);
        add(hn::Load(d, tail.lanes), score, weights);
      });
  return {static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(weights, more_weights)))),
          static_cast<double>(hn::GetLane(hn::SumOfLanes(d, logits))),
          static_cast<double>(hn::GetLane(hn::SumOfLanes(d, of_scores)))};
}

template <class T>
Sums SumRange(const T* row, const T* scores, int64_t first, int64_t last, T max, bool entropy) {
  if (scores)
    return entropy ? SumRange<true, true>(row, scores, first, last, max)
                   : SumRange<false, true>(row, scores, first, last, max);
  return entropy ? SumRange<true, false>(row, scores, first, last, max)
                 : SumRange<false, false>(row, scores, first, last, max);
}

template <class T>
RowSummary SummariseRow(T* row, int64_t size, const Transform<T>& transform, bool entropy, const T* scores) {
  double max = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();
  Sums total;  // relative to max
  for (int64_t first = 0; first < size; first += kChunk) {
    const int64_t last = std::min(first + kChunk, size);
    if (!transform.identity()) TransformRange(row, first, last, transform);
    T high, low;
    Extremes(row, first, last, high, low);
    if (!(high < std::numeric_limits<T>::infinity())) {  // NaN or +inf
      const double nan = std::numeric_limits<double>::quiet_NaN();
      return {{nan, nan, nan, false}, nan, nan};
    }
    smallest = std::min(smallest, static_cast<double>(low));
    if (high > max) {
      if (total.weights > 0) {
        const double drop = max - high;
        const double shrink = std::exp(drop);
        total.weighted_logit = shrink * (total.weighted_logit + drop * total.weights);
        if (shrink == 0) total.weighted_logit = 0;
        total.weights *= shrink;
        total.weighted_score *= shrink;
      }
      max = high;
    }
    if (high == MinusInfinity<T>()) continue;
    const Sums sums = SumRange(row, scores, first, last, static_cast<T>(max), entropy);
    total.weights += sums.weights;
    total.weighted_logit += sums.weighted_logit;
    total.weighted_score += sums.weighted_score;
  }
  RowSummary summary;
  summary.normaliser = {max, total.weights, std::log(total.weights),
                        smallest == -std::numeric_limits<double>::infinity()};
  if (total.weights == 0) {  // -inf alone
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {{max, nan, 0, true}, nan, nan};
  }
  summary.entropy = std::max(0.0, summary.normaliser.log_sum - total.weighted_logit / total.weights);
  summary.expected = total.weighted_score / total.weights;
  return summary;
}

template <class T>
void GradientOfLaw(const T* row, const Normaliser& normaliser, const T* scores, int64_t first, int64_t last,
                   double constant, double of_logp, double of_score, T* out) {
  const hn::ScalableTag<T> d;
  const auto max = Constant(d, normaliser.max);
  const auto scale = Constant(d, 1 / normaliser.sum);
  const auto base = Constant(d, constant - of_logp * normaliser.log_sum);
  const auto by_logit = Constant(d, of_logp);
  const auto by_score = Constant(d, of_score);
  const auto lowest = hn::Set(d, std::numeric_limits<T>::lowest());
  const auto gradient = [&](auto z, auto score) HWY_ATTR {
    const auto x = hn::Sub(z, max);
    const auto q = hn::Mul(ExpBelowZero(d, x), scale);
    auto factor = hn::MulAdd(by_score, score, base);
    if (of_logp != 0) factor = hn::MulAdd(by_logit, hn::Max(x, lowest), factor);
    return hn::IfThenElse(hn::Eq(q, hn::Zero(d)), q, hn::Mul(q, factor));  // 0 ln 0 is 0
  };
  ForVectors<T>(
      first, last,
      [&](int64_t j) HWY_ATTR {
        const auto score = scores ? hn::LoadU(d, scores + j) : hn::Zero(d);
        hn::StoreU(gradient(hn::LoadU(d, row + j), score), d, out + (j - first));
      },
      [&](int64_t j, int64_t count) HWY_ATTR {
        Tail<T> tail(row + j, count, MinusInfinity<T>());
        auto score = hn::Zero(d);
        if (scores) score = hn::Load(d, Tail<T>(scores + j, count, T(0)).lanes);
        hn::Store(gradient(hn::Load(d, tail.lanes), score), d, tail.lanes);
        std::copy(tail.lanes, tail.lanes + count, out + (j - first));
      });
}

template <class T>
void Combine(const T* basis, const T* law, int64_t size, double weight, double constant, T* out) {
  const hn::ScalableTag<T> d;
  const auto by = Constant(d, weight);
  const auto of_law = Constant(d, constant);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= size; j += lanes) {
    hn::StoreU(hn::MulAdd(by, hn::LoadU(d, basis + j), hn::Mul(of_law, hn::LoadU(d, law + j))), d, out + j);
  }
  for (; j < size; ++j) out[j] = static_cast<T>(weight) * basis[j] + static_cast<T>(constant) * law[j];
}

template <class T>
LawKernels<T> Kernels() {
  return {&SummariseRow<T>, &TransformRow<T>, &GradientOfLaw<T>, &Combine<T>};
}
LawKernels<float> LawKernels32() { return Kernels<float>(); }
LawKernels<double> LawKernels64() { return Kernels<double>(); }
const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace kullback::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kullback::detail {

HWY_EXPORT(LawKernels32);
HWY_EXPORT(LawKernels64);
HWY_EXPORT(Target);

template <>
const LawKernels<float>& law_kernels<float>() {
  static const LawKernels<float> kernels = HWY_DYNAMIC_DISPATCH(LawKernels32)();
  return kernels;
}
template <>
const LawKernels<double>& law_kernels<double>() {
  static const LawKernels<double> kernels = HWY_DYNAMIC_DISPATCH(LawKernels64)();
  return kernels;
}

const char* kernel_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kullback::detail
#endif  // HWY_ONCE
