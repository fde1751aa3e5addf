#include "kullback/divergence/head_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/core/Tensor.h>

#include "kullback/divergence/definition.h"

namespace kullback::detail {
namespace {

constexpr int64_t kPiece = 1024;  // tokens of a row whose gradient is held in the first-level cache

/// The k largest logits, ties to the smaller id.
template <class T>
void top_of_row(const T* row, int64_t size, int64_t k, int64_t* ids) {
  const auto better = [row](int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); };
  std::iota(ids, ids + k, int64_t{0});
  std::make_heap(ids, ids + k, better);  // the worst kept is in front
  for (int64_t j = k; j < size; ++j) {
    if (!(row[j] > row[ids[0]])) continue;
    std::pop_heap(ids, ids + k, better);
    ids[k - 1] = j;
    std::push_heap(ids, ids + k, better);
  }
  std::sort_heap(ids, ids + k, better);
}

/// ln of the row's law in float64 throughout.
template <class T>
std::vector<double> log_law(const T* row, int64_t size, const Normaliser& normaliser) {
  std::vector<double> out(row, row + size);
  double sum = 0;
  for (double& x : out) sum += std::exp(x -= normaliser.max);
  const double log_sum = std::log(sum);
  for (double& x : out) x -= log_sum;
  return out;
}

template <class T>
RowPair<T> pair_of(const Row<T>& row, const RowStates& states) {
  return {row.policy, row.reference, states.policy[row.token], states.reference[row.token]};
}

/// The plain float64 way of a divergence, with p dD/dp of the policy's law where `slopes` is not empty.
template <class T>
double plain_divergence(const RowDivergence& d, const Row<T>& row, const RowStates& states, std::span<double> slopes) {
  const std::vector<double> policy = log_law(row.policy, row.width, states.policy[row.token]);
  const std::vector<double> reference = log_law(row.reference, row.width, states.reference[row.token]);
  const PlainRow& plain = d.divergence.definition().plain;
  return d.direction == Direction::from_policy ? plain(policy, reference, slopes, {})
                                               : plain(reference, policy, {}, slopes);
}

/// A term's sums with the rows taken to float64 first.
template <class T>
TermSums sums_in_float64(const Term& term, const Row<T>& row) {
  std::vector<double> policy(row.policy, row.policy + row.width), reference(row.reference, row.reference + row.width);
  const auto law = [&](std::vector<double>& logits) {
    return law_kernels<double>().summarise(logits.data(), row.width, {}, false, nullptr).normaliser;
  };
  const RowPair<double> rows{policy.data(), reference.data(), law(policy), law(reference)};
  return term_kernels<double>().sums(term, rows, 0, row.width);
}

template <class T>
void divergence_of_row(size_t which, const Row<T>& row, const HeadRequest& request, RowStates& states) {
  const RowDivergence& d = request.divergences[which];
  auto& state = states.divergences[which];
  if (const auto& term = d.divergence.definition().term(d.direction)) {
    const TermSums sums = term->magnifies() ? sums_in_float64(*term, row)
                                            : term_kernels<T>().sums(*term, pair_of(row, states), 0, row.width);
    state.value[row.token] = term_value(*term, sums);
    state.basis[row.token] = sums.basis * term->scale;
  } else if (std::isnan(states.policy[row.token].sum) || std::isnan(states.reference[row.token].sum)) {
    state.value[row.token] = std::numeric_limits<double>::quiet_NaN();
  } else {
    state.value[row.token] = plain_divergence(d, row, states, {});
  }
}

/// The one divergence of the row, its G and q in the places of the logits.
template <class T>
void keep_divergence(const Row<T>& row, const HeadRequest& request, RowStates& states) {
  const RowDivergence& d = request.divergences[0];
  const Term& term = *d.divergence.definition().term(d.direction);
  const TermSums sums = term_kernels<T>().keep(term, pair_of(row, states), 0, row.width, row.policy, row.reference);
  states.divergences[0].value[row.token] = term_value(term, sums);
  states.divergences[0].basis[row.token] = sums.basis * term.scale;
}

/// What one upstream asks of one row, already divided by the temperature.
struct Coefficients {
  double constant = 0, of_logp = 0, of_score = 0;  // q_j (constant + of_logp ln q_j + of_score score_j)
  std::vector<double> of_divergence;
  double of_label = 0;
  const double* of_top = nullptr;
  double top_scale = 1;
  bool nothing = true;
};

double at(const double* weights, int64_t token) { return weights ? weights[token] : 0; }

Coefficients coefficients(const Upstream& up, int64_t token, int64_t label, int64_t top_k, double temperature,
                          const HeadRequest& request, const RowStates& states) {
  Coefficients c;
  const auto take = [&](double weight) {
    c.nothing = c.nothing && weight == 0;
    return weight / temperature;
  };
  if (label >= 0) c.of_label = take(at(up.logps, token));
  c.constant = take(at(up.logsumexp, token)) - c.of_label;
  if (const double g = take(at(up.entropy, token)); g != 0) {
    c.of_logp = -g;
    c.constant -= g * states.entropy[token];
  }
  if (const double g = take(at(up.expected, token)); g != 0) {
    c.of_score = g;
    c.constant -= g * states.expected[token];
  }
  if (up.top_logps) {
    c.of_top = up.top_logps + token * top_k;
    c.top_scale = 1 / temperature;
    for (int64_t i = 0; i < top_k; ++i) c.constant -= take(c.of_top[i]);
  }
  for (size_t i = 0; i < request.divergences.size(); ++i) {
    double g = i < up.divergences.size() ? take(at(up.divergences[i], token)) : 0;
    const auto& state = states.divergences[i];
    // An infinite divergence, or one beyond the rows' precision, has no gradient.
    if (std::isinf(state.value[token]) || (!std::isnan(state.value[token]) && !std::isfinite(state.basis[token])))
      g = 0;
    c.of_divergence.push_back(g);
    if (g != 0) c.constant -= g * state.basis[token];
  }
  return c;
}

/// The part of the gradient that plain divergences bring, [V]; empty where there is none.
template <class T>
std::vector<double> plain_part(const Row<T>& row, const HeadRequest& request, const RowStates& states,
                               Coefficients& c) {
  std::vector<double> total;
  for (size_t i = 0; i < request.divergences.size(); ++i) {
    const RowDivergence& d = request.divergences[i];
    if (c.of_divergence[i] == 0 || d.divergence.definition().term(d.direction)) continue;
    std::vector<double> slopes(static_cast<size_t>(row.width));
    plain_divergence(d, row, states, slopes);
    total.resize(slopes.size());
    for (size_t j = 0; j < slopes.size(); ++j) total[j] += c.of_divergence[i] * slopes[j];
    c.constant -= c.of_divergence[i] * std::accumulate(slopes.begin(), slopes.end(), 0.0);
  }
  return total;
}

/// d(logit after the transform) / d(logit before), times the temperature: 1 - tanh^2.
template <class T>
double softcap_slope(const Transform<T>& transform, double z) {
  if (transform.softcap == 0) return 1;
  const double tanh = z * transform.temperature / transform.softcap;
  return 1 - tanh * tanh;
}

/// The gradient of one piece [first, last) of the row. Returns the sums of the first divergence's term.
template <class T>
TermSums piece_gradient(const Row<T>& row, const HeadRequest& request, const RowStates& states, const Coefficients& c,
                        int64_t first, int64_t last, T* out) {
  TermSums sums;
  bool written = false;
  double constant = c.constant;
  if (c.of_logp != 0 || c.of_score != 0) {
    law_kernels<T>().gradient(row.policy, states.policy[row.token], row.scores, first, last, constant, c.of_logp,
                              c.of_score, out);
    written = true;
    constant = 0;
  }
  for (size_t i = 0; i < c.of_divergence.size(); ++i) {
    const RowDivergence& d = request.divergences[i];
    const auto& term = d.divergence.definition().term(d.direction);
    if (c.of_divergence[i] == 0 || !term) continue;
    const TermSums part = term_kernels<T>().gradient(*term, pair_of(row, states), first, last, c.of_divergence[i],
                                                     constant, written, out);
    if (i == 0) sums = part;
    written = true;
    constant = 0;
  }
  if (!written)
    law_kernels<T>().gradient(row.policy, states.policy[row.token], nullptr, first, last, constant, 0, 0, out);
  return sums;
}

/// The parts of the gradient that fall on the label and on the likeliest tokens.
template <class T>
void add_one_hots(const Row<T>& row, const Coefficients& c, double label_slope, const int64_t* top,
                  const std::vector<double>& top_slopes, T* out) {
  if (row.label >= 0) out[row.label] += static_cast<T>(c.of_label * label_slope);
  if (!c.of_top) return;
  for (size_t i = 0; i < top_slopes.size(); ++i)
    out[top[i]] += static_cast<T>(c.of_top[i] * c.top_scale * top_slopes[i]);
}

/// Whether this row's KL is left to its gradient; with a -inf in a row it may be infinite, which must be known before.
bool deferred(Sharing sharing, const Normaliser& policy, const Normaliser& reference) {
  return sharing == Sharing::deferred && !policy.zeros && !reference.zeros;
}

}  // namespace

Sharing choose_sharing(const HeadRequest& request, const Upstream& upstream, bool softcap) {
  if (request.divergences.size() != 1 || upstream.divergences.empty() || !upstream.divergences[0]) return Sharing::none;
  const RowDivergence& d = request.divergences[0];
  const auto& term = d.divergence.definition().term(d.direction);
  if (!term) return Sharing::none;
  if (term->kind == Term::Kind::kl) return Sharing::deferred;
  const bool kept = !term->magnifies() && !softcap && !upstream.entropy && !upstream.expected;
  return kept ? Sharing::kept : Sharing::none;
}

template <class T>
void row_statistics(const Row<T>& row, const RowTransforms<T>& transforms, const HeadRequest& request, Sharing sharing,
                    RowStates& states, const StatisticsOut& out) {
  const int64_t t = row.token;
  const RowSummary summary =
      law_kernels<T>().summarise(row.policy, row.vocabulary, transforms.policy, request.entropy, row.scores);
  const Normaliser& law = states.policy[t] = summary.normaliser;
  if (out.logps)
    out.logps[t] = row.label < 0 ? 0 : (static_cast<double>(row.policy[row.label]) - law.max) - law.log_sum;
  if (out.logsumexp) out.logsumexp[t] = law.logsumexp();
  if (request.entropy) out.entropy[t] = states.entropy[t] = summary.entropy;
  if (row.scores) out.expected[t] = states.expected[t] = summary.expected;
  if (request.top_k > 0) {
    int64_t* ids = states.top_ids.data_ptr<int64_t>() + t * request.top_k;
    top_of_row(row.policy, row.vocabulary, request.top_k, ids);
    for (int64_t i = 0; i < request.top_k; ++i) {
      out.top_logps[t * request.top_k + i] = (static_cast<double>(row.policy[ids[i]]) - law.max) - law.log_sum;
    }
  }
  if (!row.reference) return;
  states.reference[t] = law_kernels<T>()
                            .summarise(row.reference, row.reference_vocabulary, transforms.reference, false, nullptr)
                            .normaliser;
  // A token that only one vocabulary has is one of probability 0 in the other.
  states.policy[t].zeros = law.zeros || row.vocabulary < row.width;
  states.reference[t].zeros = states.reference[t].zeros || row.reference_vocabulary < row.width;
  for (size_t i = 0; i < request.divergences.size(); ++i) {
    if (sharing == Sharing::kept)
      keep_divergence(row, request, states);
    else if (!deferred(sharing, law, states.reference[t]))
      divergence_of_row(i, row, request, states);
    out.divergences[i][t] = states.divergences[i].value[t];
  }
}

template <class T>
void transform_rows(const Row<T>& row, const RowTransforms<T>& transforms) {
  law_kernels<T>().transform(row.policy, row.vocabulary, transforms.policy);
  if (row.reference) law_kernels<T>().transform(row.reference, row.reference_vocabulary, transforms.reference);
}

template <class T>
void row_gradients(const Row<T>& row, const RowTransforms<T>& transforms, const HeadRequest& request, Sharing sharing,
                   RowStates& states, const StatisticsOut& out, std::span<const RowGradient<T>> gradients) {
  const int64_t t = row.token, size = row.width, k = request.top_k;
  const Normaliser law = states.policy[t];
  const bool softcap = transforms.policy.softcap != 0;
  const bool value_wanted = deferred(sharing, law, row.reference ? states.reference[t] : Normaliser{});
  std::vector<Coefficients> asked;
  std::vector<std::vector<double>> plain;
  for (const RowGradient<T>& g : gradients) {
    asked.push_back(coefficients(*g.upstream, t, row.label, k, transforms.policy.temperature, request, states));
    plain.push_back(asked.back().nothing ? std::vector<double>{} : plain_part(row, request, states, asked.back()));
  }
  // The logits that a one-hot part needs, before the gradients take the rows' place.
  const int64_t* top = k > 0 ? states.top_ids.template data_ptr<int64_t>() + t * k : nullptr;
  const double label_slope = row.label < 0 ? 0 : softcap_slope(transforms.policy, row.policy[row.label]);
  std::vector<double> top_slopes;
  for (int64_t i = 0; i < k; ++i) top_slopes.push_back(softcap_slope(transforms.policy, row.policy[top[i]]));

  if (sharing == Sharing::kept) {
    if (asked[0].nothing) {
      std::fill_n(gradients[0].out, size, T(0));
      return;
    }
    const RowDivergence& d = request.divergences[0];
    const double weight = asked[0].of_divergence[0] * d.divergence.definition().term(d.direction)->scale;
    law_kernels<T>().combine(row.policy, row.reference, size, weight, asked[0].constant, gradients[0].out);
    add_one_hots(row, asked[0], label_slope, top, top_slopes, gradients[0].out);
    return;
  }

  const bool made_here = value_wanted && asked[0].of_divergence[0] != 0;
  if (value_wanted && !made_here) {  // the gradient passes it by
    divergence_of_row(0, row, request, states);
    out.divergences[0][t] = states.divergences[0].value[t];
  }

  TermSums sums;
  std::vector<T> held(gradients.size() * kPiece);
  for (int64_t first = 0; first < size; first += kPiece) {
    const int64_t last = std::min(first + kPiece, size), count = last - first;
    for (size_t g = 0; g < gradients.size(); ++g) {
      T* piece = held.data() + g * kPiece;
      if (asked[g].nothing) {
        std::fill(piece, piece + count, T(0));
        continue;
      }
      const TermSums part = piece_gradient(row, request, states, asked[g], first, last, piece);
      if (g == 0) sums.value += part.value;
      if (!plain[g].empty()) {
        for (int64_t j = 0; j < count; ++j) piece[j] += static_cast<T>(plain[g][first + j]);
      }
      if (softcap) {
        for (int64_t j = 0; j < count; ++j)
          piece[j] *= static_cast<T>(softcap_slope(transforms.policy, row.policy[first + j]));
      }
    }
    for (size_t g = 0; g < gradients.size(); ++g) {
      std::copy_n(held.data() + g * kPiece, count, gradients[g].out + first);
    }
  }
  for (size_t g = 0; g < gradients.size(); ++g) {
    if (!asked[g].nothing) add_one_hots(row, asked[g], label_slope, top, top_slopes, gradients[g].out);
  }
  if (made_here) {
    const RowDivergence& d = request.divergences[0];
    out.divergences[0][t] = states.divergences[0].value[t] =
        term_value(*d.divergence.definition().term(d.direction), sums);
  }
}

template void row_statistics<float>(const Row<float>&, const RowTransforms<float>&, const HeadRequest&, Sharing,
                                    RowStates&, const StatisticsOut&);
template void row_statistics<double>(const Row<double>&, const RowTransforms<double>&, const HeadRequest&, Sharing,
                                     RowStates&, const StatisticsOut&);
template void transform_rows<float>(const Row<float>&, const RowTransforms<float>&);
template void transform_rows<double>(const Row<double>&, const RowTransforms<double>&);
template void row_gradients<float>(const Row<float>&, const RowTransforms<float>&, const HeadRequest&, Sharing,
                                   RowStates&, const StatisticsOut&, std::span<const RowGradient<float>>);
template void row_gradients<double>(const Row<double>&, const RowTransforms<double>&, const HeadRequest&, Sharing,
                                    RowStates&, const StatisticsOut&, std::span<const RowGradient<double>>);

}  // namespace kullback::detail
