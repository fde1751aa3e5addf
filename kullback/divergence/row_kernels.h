#pragma once

#include <cstdint>

/// Vector code on one row of logits, or on a pair of rows: chosen at run time for SSE4, AVX2, AVX-512 or NEON. T is float
/// or double. Sums are carried over chunks in float64.
namespace kullback::detail {

/// How raw logits become those of the law: c tanh((z + bias) / c) / temperature.
template <class T>
struct Transform {
  const T* bias = nullptr;  // [V]
  double softcap = 0;       // c; 0: none
  double temperature = 1;

  bool identity() const { return bias == nullptr && softcap == 0 && temperature == 1; }
};

/// The law of a row of logits is exp(z - max) / sum.
struct Normaliser {
  double max = 0;
  double sum = 1;
  double log_sum = 0;
  bool zeros = false;  // some logit is -inf

  double logsumexp() const { return max + log_sum; }
};

struct RowSummary {
  Normaliser normaliser;
  double entropy = 0;   // nats
  double expected = 0;  // of the scores
};

/// Kernels on one row.
template <class T>
struct LawKernels {
  /// Transforms the row in place and sums it, in one walk. NaN or +inf anywhere makes every number NaN; a row of -inf
  /// alone has logsumexp -inf and no law (NaN). `scores` [size] may be null.
  RowSummary (*summarise)(T* row, int64_t size, const Transform<T>& transform, bool entropy, const T* scores);
  /// Only transforms, for a row whose normaliser is known.
  void (*transform)(T* row, int64_t size, const Transform<T>& transform);
  /// out[j] = q_j (constant + of_logp ln q_j + of_score score_j) for j in [first, last); out[0] belongs to j = first.
  void (*gradient)(const T* row, const Normaliser& normaliser, const T* scores, int64_t first, int64_t last,
                   double constant, double of_logp, double of_score, T* out);
  /// out = weight basis + constant law, all [size]; `out` may be either of them.
  void (*combine)(const T* basis, const T* law, int64_t size, double weight, double constant, T* out);
};

template <class T>
const LawKernels<T>& law_kernels();

/// An f-divergence D_f(p||q) with a closed form in vector code; q is the policy's law. It is summed as q h(u), u = p/q, with
/// h(u) = f(u) - f'(1)(u - 1): the same divergence, but no error of a normaliser shows, and its gradient is small where the
/// laws are close.
struct Term {
  enum class Kind { kl, symmetric, js, skew_kl, skew_reverse_kl, total_variation, hellinger, le_cam, alpha };
  Kind kind = Kind::kl;
  double first = 0;              // symmetric: weight of KL(p||q); js: weight of p; skew, alpha: alpha
  double second = 0;             // symmetric: weight of KL(q||p)
  double scale = 1;              // what value and gradient are multiplied by
  double at_zero = 0;            // h(0), before `scale`
  double slope_at_infinity = 0;  // lim h(u) / u, before `scale`

  /// Whether ratios are taken to a power beyond (0, 1), which takes the rounding of float32 logits with them.
  bool magnifies() const { return kind == Kind::alpha && !(first > 0 && first < 1); }
};

/// Sums over the tokens that both laws hold, and the mass of those that only one holds.
struct TermSums {
  double value = 0;           // sum q h(p/q)
  double basis = 0;           // sum of G, see TermKernels::gradient
  double policy_only = 0;     // sum q where p = 0
  double reference_only = 0;  // sum p where q = 0
  bool any_policy_only = false, any_reference_only = false;
};

/// Two rows with their normalisers.
template <class T>
struct RowPair {
  const T* policy;
  const T* reference;
  Normaliser of_policy, of_reference;
};

/// Kernels on a pair of rows, over the tokens [first, last).
template <class T>
struct TermKernels {
  TermSums (*sums)(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last);
  /// out[j] (+)= weight G_j + constant q_j; out[0] belongs to j = first. G_j = q_j (h - u h')(u_j), which the
  /// softmax's own gradient turns into G_j - q_j sum_k G_k. Returns the sums of what it walked.
  TermSums (*gradient)(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, double weight,
                       double constant, bool add, T* out);
  /// The sums, and G_j and q_j themselves; `basis` and `law` may be the two rows' own places.
  TermSums (*keep)(const Term& term, const RowPair<T>& rows, int64_t first, int64_t last, T* basis, T* law);
};

template <class T>
const TermKernels<T>& term_kernels();

/// The name of the instruction set that the kernels run on.
const char* kernel_target();

}  // namespace kullback::detail
