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

/// Adds up the tokens of one chunk and makes their gradient.
template <Kind kind, class T>
class Walker {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  HWY_INLINE Walker(const Term& term, const RowPair<T>& rows, double weight, double constant)
      : scales_(D(), rows),
        parameters_(D(), term),
        by_(Constant(D(), weight * term.scale)),
        law_(Constant(D(), constant)),
        // G of a token that only the policy holds is q h(0); an infinite divergence has no gradient, and gets none.
        of_alone_(Constant(D(), std::isfinite(term.at_zero) ? term.at_zero : 0)) {}

  /// G and q of one vector of tokens; `careful` where either row may hold a -inf.
  template <bool careful>
  HWY_INLINE void Step(V z, V a, V& basis, V& q) {
    const D d;
    const Tokens<D> t = scales_.At(z, a);
    V value = hn::Zero(d);
    Evaluate<kind>(d, scales_, parameters_, t, value, basis, q);
    if constexpr (careful) {
      const V nothing = hn::Set(d, MinusInfinity<T>());
      const auto held = hn::Gt(z, nothing);
      const auto reference_held = hn::Gt(a, nothing);
      const auto both = hn::And(held, reference_held);
      const auto only_policy = hn::AndNot(reference_held, held);
      const auto only_reference = hn::AndNot(held, reference_held);
      any_policy_only_ = any_policy_only_ || !hn::AllFalse(d, only_policy);
      any_reference_only_ = any_reference_only_ || !hn::AllFalse(d, only_reference);
      q = hn::Mul(ExpBelowZero(d, t.policy), scales_.policy);
      const V lone = hn::IfThenElseZero(only_policy, q);
      const V other = hn::IfThenElseZero(only_reference, hn::Mul(ExpBelowZero(d, t.reference), scales_.reference));
      policy_only_ = hn::Add(policy_only_, lone);
      reference_only_ = hn::Add(reference_only_, other);
      value = hn::IfThenElseZero(both, value);
      basis = hn::IfThenElse(both, basis, hn::Mul(lone, of_alone_));
    }
    values_ = hn::Add(values_, value);
    bases_ = hn::Add(bases_, basis);
  }

  HWY_INLINE V Gradient(V basis, V q) const { return hn::MulAdd(by_, basis, hn::Mul(law_, q)); }

  HWY_INLINE void AddTo(TermSums& sums) const {
    sums.value += Total(values_);
    sums.basis += Total(bases_);
    sums.policy_only += Total(policy_only_);
    sums.reference_only += Total(reference_only_);
    sums.any_policy_only = sums.any_policy_only || any_policy_only_;
    sums.any_reference_only = sums.any_reference_only || any_reference_only_;
  }

 private:
  static HWY_INLINE double Total(V v) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(D(), v))); }

  const Scales<D> scales_;
  const Parameters<D> parameters_;
  const V by_, law_, of_alone_;
  V values_ = hn::Zero(D()), bases_ = hn::Zero(D()), policy_only_ = hn::Zero(D()), reference_only_ = hn::Zero(D());
  bool any_policy_only_ = false, any_reference_only_ = false;
};

enum class Output { none, gradient, kept };

/// What a walk writes.
template <class T>
struct Target {
  double weight = 0, constant = 0;
  bool add = false;
  T* out = nullptr;  // the gradient, or the kept G; belongs to the first token walked
  T* law = nullptr;  // the kept q

  Target At(int64_t offset) const {
    return {weight, constant, add, out ? out + offset : nullptr, law ? law + offset : nullptr};
  }
};

/// Walks a chunk of both rows; `careful` when either row holds a -inf.
template <Kind kind, bool careful, Output output, class T>
void WalkRange(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, const Target<T>& target,
               TermSums& sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(hn::ScalableTag<T>())>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Walker<kind, T> walker(term, rows, target.weight, target.constant);
  V basis = hn::Zero(d), q = hn::Zero(d);
  int64_t j = first;
  for (; j + lanes <= last; j += lanes) {
    walker.template Step<careful>(hn::LoadU(d, rows.policy + j), hn::LoadU(d, rows.reference + j), basis, q);
    if constexpr (output == Output::gradient) {
      T* to = target.out + (j - first);
      const V g = walker.Gradient(basis, q);
      hn::StoreU(target.add ? hn::Add(g, hn::LoadU(d, to)) : g, d, to);
    } else if constexpr (output == Output::kept) {
      hn::StoreU(basis, d, target.out + (j - first));
      hn::StoreU(q, d, target.law + (j - first));
    }
  }
  if (j < last) {
    const int64_t count = last - j;
    Tail<T> policy(rows.policy + j, count, MinusInfinity<T>());
    Tail<T> reference(rows.reference + j, count, MinusInfinity<T>());
    walker.template Step<true>(hn::Load(d, policy.lanes), hn::Load(d, reference.lanes), basis, q);
    if constexpr (output == Output::gradient) {
      Tail<T> to(target.out + (j - first), target.add ? count : 0, T(0));
      hn::Store(hn::Add(walker.Gradient(basis, q), hn::Load(d, to.lanes)), d, to.lanes);
      std::copy(to.lanes, to.lanes + count, target.out + (j - first));
    } else if constexpr (output == Output::kept) {
      hn::Store(basis, d, policy.lanes);
      hn::Store(q, d, reference.lanes);
      std::copy(policy.lanes, policy.lanes + count, target.out + (j - first));
      std::copy(reference.lanes, reference.lanes + count, target.law + (j - first));
    }
  }
  walker.AddTo(sums);
}

template <Kind kind, Output output, class T>
TermSums Walk(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, const Target<T>& target) {
  TermSums sums;
  const bool careful = rows.of_policy.zeros || rows.of_reference.zeros;
  for (int64_t from = first; from < last; from += kChunk) {
    const int64_t to = std::min(from + kChunk, last);
    if (careful)
      WalkRange<kind, true, output>(term, rows, from, to, target.At(from - first), sums);
    else
      WalkRange<kind, false, output>(term, rows, from, to, target.At(from - first), sums);
  }
  return sums;
}

template <Output output, class T>
TermSums WalkKind(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, const Target<T>& target) {
  switch (term.kind) {
    case Kind::kl: return Walk<Kind::kl, output>(term, rows, first, last, target);
    case Kind::symmetric: return Walk<Kind::symmetric, output>(term, rows, first, last, target);
    case Kind::js: return Walk<Kind::js, output>(term, rows, first, last, target);
    case Kind::skew_kl: return Walk<Kind::skew_kl, output>(term, rows, first, last, target);
    case Kind::skew_reverse_kl: return Walk<Kind::skew_reverse_kl, output>(term, rows, first, last, target);
    case Kind::total_variation: return Walk<Kind::total_variation, output>(term, rows, first, last, target);
    case Kind::hellinger: return Walk<Kind::hellinger, output>(term, rows, first, last, target);
    case Kind::le_cam: return Walk<Kind::le_cam, output>(term, rows, first, last, target);
    case Kind::alpha: return Walk<Kind::alpha, output>(term, rows, first, last, target);
  }
  return {};
}

// A row without a law (NaN in it, or -inf alone) has no divergence.
template <class T>
bool Lawless(const RowPair<T>& rows) {
  return std::isnan(rows.of_policy.sum) || std::isnan(rows.of_reference.sum);
}

TermSums NoSums() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {nan, nan, 0, 0, false, false};
}

template <class T>
TermSums SumTerm(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last) {
  return Lawless(rows) ? NoSums() : WalkKind<Output::none, T>(term, rows, first, last, {});
}

template <class T>
TermSums KeepTerm(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, T* basis, T* law) {
  const TermSums sums = WalkKind<Output::kept, T>(term, rows, first, last, {0, 0, false, basis, law});
  return Lawless(rows) ? NoSums() : sums;
}

template <class T>
TermSums GradientOfTerm(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight,
                        double constant, bool add, T* out) {
  return WalkKind<Output::gradient, T>(term, rows, first, last, {weight, constant, add, out, nullptr});
}

template <class T>
TermKernels<T> Kernels() {
  return {&SumTerm<T>, &GradientOfTerm<T>, &KeepTerm<T>};
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
