// The formulas of the row kernels, for one vector of tokens; included once for each instruction set.
#if defined(KULLBACK_ROW_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KULLBACK_ROW_TERMS_INL_H_
#undef KULLBACK_ROW_TERMS_INL_H_
#else
#define KULLBACK_ROW_TERMS_INL_H_
#endif

#include "kullback/divergence/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kullback::detail {
namespace HWY_NAMESPACE {

using Kind = Term::Kind;

/// e^x and e^x - 1, x <= 0, both with full relative accuracy.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void ExpBoth(D d, V x, V& exp, V& minus_one) {
  exp = ExpBelowZero(d, x);
  minus_one = hn::IfThenElse(hn::Gt(x, Constant(d, -0.35)), ExpMinusOneNearZero(d, x), hn::Sub(exp, Constant(d, 1)));
}

/// e^x for any x: infinite where it overflows, which Highway's own leaves undefined.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpAny(D d, V x) {
  return hn::Exp(d, hn::Min(x, Constant(d, sizeof(hn::TFromD<D>) == 4 ? 104 : 720)));
}

/// One vector of tokens under both laws.
template <class D>
struct Tokens {
  using V = hn::Vec<D>;
  V policy, reference;  // z - max of each row
  V log_ratio;          // ln p - ln q
};

/// What a pair of rows has in common for all its tokens.
template <class D>
struct Scales {
  using V = hn::Vec<D>;
  V policy_max, reference_max, policy, reference;  // 1 / sum of each
  V shift, shift_rest;                             // ln sum of the reference less that of the policy, in two parts

  template <class T>
  HWY_INLINE Scales(D d, const RowPair<T>& rows)
      : policy_max(Constant(d, rows.of_policy.max)),
        reference_max(Constant(d, rows.of_reference.max)),
        policy(Constant(d, 1 / rows.of_policy.sum)),
        reference(Constant(d, 1 / rows.of_reference.sum)),
        shift(Constant(d, Difference(rows))),
        shift_rest(Constant(d, Difference(rows) - static_cast<double>(static_cast<T>(Difference(rows))))) {}

  template <class T>
  static double Difference(const RowPair<T>& rows) {
    return rows.of_reference.log_sum - rows.of_policy.log_sum;
  }

  HWY_INLINE Tokens<D> At(V z, V a) const {
    Tokens<D> t;
    t.policy = hn::Sub(z, policy_max);
    t.reference = hn::Sub(a, reference_max);
    // Rows are compared before their normalisers come in, which keeps ln(p/q) exact where the rows are close.
    t.log_ratio = hn::Sub(hn::Sub(hn::Sub(t.reference, t.policy), shift), shift_rest);
    return t;
  }
};

/// The larger of p and q and the smaller one's ratio to it: nothing overflows, and differences keep their digits.
template <class D>
struct Ratio {
  using V = hn::Vec<D>;
  hn::Mask<D> reference_larger;
  V larger;    // max(p, q)
  V exponent;  // -|ln p - ln q|
  V shifted;   // z - max of the larger one's row
  V scale;     // 1 / sum of that row

  HWY_INLINE Ratio(D d, const Scales<D>& s, const Tokens<D>& t)
      : reference_larger(hn::Ge(t.log_ratio, hn::Zero(d))),
        exponent(hn::Neg(hn::Abs(t.log_ratio))),
        shifted(hn::IfThenElse(reference_larger, t.reference, t.policy)),
        scale(hn::IfThenElse(reference_larger, s.reference, s.policy)) {
    larger = hn::Mul(ExpBelowZero(d, shifted), scale);
  }
};

template <class D>
struct Parameters {
  using V = hn::Vec<D>;
  V first, second;
  bool bounded;  // a power within (0, 1)
  HWY_INLINE Parameters(D d, const Term& t)
      : first(Constant(d, t.first)), second(Constant(d, t.second)), bounded(!t.magnifies()) {}
};

/// q, value = q h(u) and basis = G of TermKernels::gradient, for one vector of tokens that both laws hold.
template <Kind kind, class D, class V = hn::Vec<D>>
HWY_INLINE void Evaluate(D d, const Scales<D>& s, const Parameters<D>& parameters, const Tokens<D>& t, V& value,
                         V& basis, V& q) {
  using hn::Add, hn::IfThenElse, hn::Mul, hn::MulAdd, hn::Neg, hn::NegMulAdd, hn::Sub;
  const V one = Constant(d, 1);

  if constexpr (kind == Kind::kl || kind == Kind::symmetric) {
    const V p = Mul(ExpBelowZero(d, t.reference), s.reference);
    q = Mul(ExpBelowZero(d, t.policy), s.policy);
    const V near = Mul(p, ExpMinusOneNearZero(d, Neg(t.log_ratio)));
    const V less = IfThenElse(hn::Lt(hn::Abs(t.log_ratio), Constant(d, 0.35)), near, Sub(q, p));  // q - p
    if constexpr (kind == Kind::kl) {
      value = MulAdd(p, t.log_ratio, less);
      basis = less;
    } else {
      const V forward = Mul(parameters.first, less);
      const V reverse = Mul(Mul(q, parameters.second), t.log_ratio);
      basis = Sub(forward, reverse);
      value = MulAdd(Mul(p, parameters.first), t.log_ratio, NegMulAdd(parameters.second, less, basis));
    }
  } else if constexpr (kind == Kind::total_variation) {
    const Ratio<D> r(d, s, t);
    V ratio, difference;
    ExpBoth(d, r.exponent, ratio, difference);
    q = Mul(r.larger, IfThenElse(r.reference_larger, ratio, one));
    const V half = Constant(d, 0.5);
    value = Neg(Mul(half, Mul(r.larger, difference)));
    const V half_q = Mul(half, q);
    const V basis_or_zero = IfThenElse(hn::Eq(t.log_ratio, hn::Zero(d)), hn::Zero(d), half_q);
    basis = IfThenElse(r.reference_larger, Neg(basis_or_zero), basis_or_zero);
  } else if constexpr (kind == Kind::hellinger) {
    const Ratio<D> r(d, s, t);
    V root, difference;
    ExpBoth(d, Mul(r.exponent, Constant(d, 0.5)), root, difference);
    q = Mul(r.larger, IfThenElse(r.reference_larger, Mul(root, root), one));
    value = Mul(r.larger, Mul(difference, difference));
    basis = Mul(r.larger, Mul(difference, IfThenElse(r.reference_larger, root, Neg(one))));
  } else if constexpr (kind == Kind::le_cam) {
    const Ratio<D> r(d, s, t);
    V ratio, difference;
    ExpBoth(d, r.exponent, ratio, difference);
    q = Mul(r.larger, IfThenElse(r.reference_larger, ratio, one));
    const V inverse = hn::Div(one, Add(difference, Constant(d, 2)));  // (p + q) / max(p, q), inverted
    const V scaled = Mul(Mul(r.larger, difference), inverse);
    value = Mul(scaled, difference);
    const V reference_side = Mul(ratio, Add(difference, Constant(d, 4)));
    const V policy_side = Neg(MulAdd(difference, Constant(d, 3), Constant(d, 4)));
    basis = Mul(Mul(scaled, inverse), IfThenElse(r.reference_larger, reference_side, policy_side));
  } else if constexpr (kind == Kind::alpha) {
    const Ratio<D> r(d, s, t);
    const V alpha = parameters.first;
    V ratio, difference;
    ExpBoth(d, r.exponent, ratio, difference);
    q = Mul(r.larger, IfThenElse(r.reference_larger, ratio, one));
    // u^alpha q is max(p, q) e^x with this x; x may be large, and the product still finite. Within (0, 1) it is below 0.
    const V power = IfThenElse(r.reference_larger, Sub(one, alpha), alpha);
    const V x = Mul(power, r.exponent);
    const V near = Mul(r.larger, ExpMinusOneNearZero(d, x));
    const V sum = Add(r.shifted, x);
    const V far = Sub(Mul(parameters.bounded ? ExpBelowZero(d, sum) : ExpAny(d, sum), r.scale), r.larger);
    const V mixed = IfThenElse(hn::Lt(hn::Abs(x), Constant(d, 0.35)), near, far);  // u^alpha q - max(p, q)
    const V less = Mul(r.larger, difference);                                      // min(p, q) - max(p, q)
    const V inverse_alpha = hn::Div(one, alpha);
    value = Mul(NegMulAdd(power, less, mixed), hn::Div(inverse_alpha, Sub(alpha, one)));
    basis = Mul(Neg(inverse_alpha), Sub(mixed, hn::IfThenElseZero(r.reference_larger, less)));
  } else {  // the mixtures m = w p + (1 - w) q
    const Ratio<D> r(d, s, t);
    V ratio, difference;
    ExpBoth(d, r.exponent, ratio, difference);
    const V w = kind == Kind::skew_reverse_kl ? Sub(one, parameters.first) : parameters.first;
    const V v = Sub(one, w);
    const V part = Mul(IfThenElse(r.reference_larger, v, w), difference);  // m / max(p, q) - 1
    const V log_mixture = Log1pBelowZero(d, part);                         // ln m - ln max(p, q)
    q = Mul(r.larger, IfThenElse(r.reference_larger, ratio, one));
    const V p = Mul(r.larger, IfThenElse(r.reference_larger, one, ratio));
    const V of_p = Sub(hn::Min(t.log_ratio, hn::Zero(d)), log_mixture);                       // ln p - ln m
    const V of_q = Sub(Neg(hn::Max(t.log_ratio, hn::Zero(d))), log_mixture);                  // ln q - ln m
    const V signed_difference = IfThenElse(r.reference_larger, Neg(difference), difference);  // (p - q) / max(p, q)
    const V gap = hn::Div(signed_difference, Add(one, part));                                 // (p - q) / m
    if constexpr (kind == Kind::js) {
      basis = Mul(Mul(v, q), of_q);
      value = MulAdd(Mul(w, p), of_p, basis);
    } else if constexpr (kind == Kind::skew_kl) {
      value = NegMulAdd(Mul(v, r.larger), signed_difference, Mul(p, of_p));
      basis = Neg(Mul(Mul(v, v), Mul(q, gap)));
    } else {
      const V reverse = Mul(q, of_q);
      value = MulAdd(Mul(w, r.larger), signed_difference, reverse);
      basis = MulAdd(Mul(Mul(v, w), q), gap, reverse);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kullback::detail
HWY_AFTER_NAMESPACE();

#endif  // KULLBACK_ROW_TERMS_INL_H_
