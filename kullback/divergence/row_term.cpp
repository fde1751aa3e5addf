#include "kullback/divergence/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kullback/divergence/row_term.cpp"
#include "kullback/divergence/row_targets.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kullback/divergence/row_terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kullback::detail {
namespace HWY_NAMESPACE {

/// Walks a chunk of both rows; `careful` when either row holds a -inf. Writes the gradient when `write` is set.
template <Kind kind, bool careful, bool write, class T>
void WalkRange(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight, double constant,
               bool add, T* out, TermSums& sums) {
  using D = hn::ScalableTag<T>;
  const D d;
  const Scales<D> scales(d, rows);
  const Parameters<D> parameters(d, term);
  const auto zero = hn::Zero(d);
  const auto nothing = hn::Set(d, MinusInfinity<T>());
  const auto by = Constant(d, weight * term.scale);
  const auto law = Constant(d, constant);
  // G of a token that only the policy holds is q h(0); an infinite divergence has no gradient, and gets none.
  const auto of_alone = Constant(d, std::isfinite(term.at_zero) ? term.at_zero : 0);
  auto values = zero;
  auto bases = zero;
  auto policy_only = zero;
  auto reference_only = zero;

  const auto gradient = [&](auto z, auto a, bool whole) HWY_ATTR {
    const auto t = scales.At(z, a);
    auto value = zero;
    auto basis = zero;
    Evaluate<kind>(d, scales, parameters, t, value, basis);
    if (careful || !whole) {
      const auto held = hn::Gt(z, nothing);
      const auto reference_held = hn::Gt(a, nothing);
      const auto both = hn::And(held, reference_held);
      const auto only_policy = hn::AndNot(reference_held, held);
      const auto only_reference = hn::AndNot(held, reference_held);
      sums.any_policy_only = sums.any_policy_only || !hn::AllFalse(d, only_policy);
      sums.any_reference_only = sums.any_reference_only || !hn::AllFalse(d, only_reference);
      const auto lone = hn::IfThenElseZero(only_policy, hn::Mul(hn::Exp(d, t.policy), scales.policy));
      const auto other = hn::IfThenElseZero(only_reference, hn::Mul(hn::Exp(d, t.reference), scales.reference));
      policy_only = hn::Add(policy_only, lone);
      reference_only = hn::Add(reference_only, other);
      value = hn::IfThenElseZero(both, value);
      basis = hn::IfThenElse(both, basis, hn::Mul(lone, of_alone));
    }
    values = hn::Add(values, value);
    bases = hn::Add(bases, basis);
    if constexpr (!write) return zero;
    const auto q = hn::Mul(hn::Exp(d, t.policy), scales.policy);
    return hn::MulAdd(by, basis, hn::Mul(law, q));
  };

  ForVectors<T>(
      first, last,
      [&](int64_t j) HWY_ATTR {
        auto g = gradient(hn::LoadU(d, rows.policy + j), hn::LoadU(d, rows.reference + j), true);
        if constexpr (write) {
          T* to = out + (j - first);
          hn::StoreU(add ? hn::Add(g, hn::LoadU(d, to)) : g, d, to);
        }
      },
      [&](int64_t j, int64_t count) HWY_ATTR {
        const Tail<T> policy(rows.policy + j, count, MinusInfinity<T>());
        const Tail<T> reference(rows.reference + j, count, MinusInfinity<T>());
        const auto g = gradient(hn::Load(d, policy.lanes), hn::Load(d, reference.lanes), false);
        if constexpr (write) {
          Tail<T> to(out + (j - first), add ? count : 0, T(0));
          hn::Store(hn::Add(g, hn::Load(d, to.lanes)), d, to.lanes);
          std::copy(to.lanes, to.lanes + count, out + (j - first));
        }
      });

  sums.value += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, values)));
  sums.basis += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, bases)));
  sums.policy_only += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, policy_only)));
  sums.reference_only += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, reference_only)));
}

template <Kind kind, bool write, class T>
TermSums Walk(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight, double constant, bool add, T* out) {
  TermSums sums;
  const bool careful = rows.of_policy.zeros || rows.of_reference.zeros;
  for (int64_t from = first; from < last; from += kChunk) {
    const int64_t to = std::min(from + kChunk, last);
    T* at = write ? out + (from - first) : nullptr;
    if (careful) {
      WalkRange<kind, true, write>(term, rows, from, to, weight, constant, add, at, sums);
    } else {
      WalkRange<kind, false, write>(term, rows, from, to, weight, constant, add, at, sums);
    }
  }
  return sums;
}

template <bool write, class T>
TermSums WalkKind(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight, double constant, bool add, T* out) {
  switch (term.kind) {
    case Kind::kl: return Walk<Kind::kl, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::symmetric: return Walk<Kind::symmetric, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::js: return Walk<Kind::js, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::skew_kl: return Walk<Kind::skew_kl, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::skew_reverse_kl: return Walk<Kind::skew_reverse_kl, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::total_variation: return Walk<Kind::total_variation, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::hellinger: return Walk<Kind::hellinger, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::le_cam: return Walk<Kind::le_cam, write>(term, rows, first, last, weight, constant, add, out);
    case Kind::alpha: return Walk<Kind::alpha, write>(term, rows, first, last, weight, constant, add, out);
  }
  return {};
}

template <class T>
TermSums SumTerm(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last) {
  // A row without a law (NaN in it, or -inf alone) has no divergence.
  if (std::isnan(rows.of_policy.sum) || std::isnan(rows.of_reference.sum)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan, 0, 0, false, false};
  }
  return WalkKind<false, T>(term, rows, first, last, 0, 0, false, nullptr);
}

template <class T>
TermSums GradientOfTerm(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight, double constant, bool add, T* out) {
  return WalkKind<true, T>(term, rows, first, last, weight, constant, add, out);
}

template <class T>
TermKernels<T> Kernels() {
  return {&SumTerm<T>, &GradientOfTerm<T>};
}
TermKernels<float> TermKernels32() { return Kernels<float>(); }
TermKernels<double> TermKernels64() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace kullback::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kullback::detail {

HWY_EXPORT(TermKernels32);
HWY_EXPORT(TermKernels64);

template <>
const TermKernels<float>& term_kernels<float>() {
  static const TermKernels<float> kernels = HWY_DYNAMIC_DISPATCH(TermKernels32)();
  return kernels;
}
template <>
const TermKernels<double>& term_kernels<double>() {
  static const TermKernels<double> kernels = HWY_DYNAMIC_DISPATCH(TermKernels64)();
  return kernels;
}

}  // namespace kullback::detail
#endif  // HWY_ONCE
