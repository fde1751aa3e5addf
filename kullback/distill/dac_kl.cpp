#include "kullback/distill/dac_kl.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/distill/counted.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {
namespace {

using at::Tensor;
using O = DacKlOptions;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Linear quantiles of each row's finite numbers: [n,V], levels [n,m] -> [n,m], differentiable in the levels.
Tensor quantiles(const Tensor& rows, const Tensor& levels) {
  const Tensor sorted = std::get<0>(at::sort(rows, 1));  // -inf first
  const int64_t last = rows.size(1) - 1;
  const Tensor finite = (sorted != -infinity).sum(1, true);
  const Tensor position = (last + 1 - finite) + levels * (finite - 1);
  const Tensor below = position.detach().floor().clamp_max(last).to(at::kLong);
  const Tensor low = sorted.gather(1, below), high = sorted.gather(1, (below + 1).clamp_max(last));
  return low + (position - below) * (high - low);
}

/// [n,2m]: quantiles of both laws' logarithms.
Tensor features(const Tensor& student, const Tensor& teacher, const O& o) {
  const Tensor levels = at::tensor(o.levels, student.options().requires_grad(false))
                            .expand({student.size(0), static_cast<int64_t>(o.levels.size())});
  return at::cat({quantiles(at::log_softmax(teacher, 1), levels), quantiles(at::log_softmax(student, 1), levels)}, 1);
}

/// ln of each class's weight [n,V]: 0 for the likeliest class, which counts once.
Tensor log_class_weights(const Tensor& log_p, const Tensor& levels, const O& o) {
  const Tensor gone = log_p == -infinity, finite = log_p.masked_fill(gone, 0);
  const Tensor bounds = quantiles(log_p, levels);
  const Tensor low = bounds.narrow(1, 0, 1), high = bounds.narrow(1, 1, 1);
  Tensor w;
  if (!o.high_density)
    w = at::full_like(log_p, -infinity);
  else if (o.mask == O::Mask::hard)
    w = at::zeros_like(log_p).masked_fill((log_p < low) | (log_p > high), -infinity);
  else
    w = at::log_sigmoid((finite - low) / o.softness) + at::log_sigmoid((high - finite) / o.softness);
  w = w.masked_fill(gone, -infinity);
  if (!o.target_class) return w;
  const Tensor ids = at::arange(log_p.size(1), at::kLong);
  const Tensor top =
      ids.masked_fill(log_p != log_p.amax(1, true), log_p.size(1)).amin(1, true);  // of equals the lowest
  return w.scatter(1, top, 0.0);
}

/// [n,7]: KL of the kept parts, kept teacher mass, number of classes, and the derivatives of the first two by the levels.
Tensor clipped(const Tensor& student, const Tensor& teacher, const Tensor& levels_here, const O& o) {
  const at::AutoGradMode with_gradients(true);
  const Tensor levels = levels_here.detach().to(student.scalar_type()).requires_grad_(true);
  const Tensor log_p = at::log_softmax(teacher, 1), log_q = at::log_softmax(student, 1);
  const Tensor w = log_class_weights(log_p, levels, o);
  const Tensor ours = log_q + w, theirs = log_p + w;
  const Tensor kl = row_divergence(divergence("kl").from_reference(), ours, theirs);
  // The levels move the teacher's part too: the same divergence from its side.
  const Tensor mirrored = row_divergence(divergence("kl").from_policy(), theirs, ours.detach());
  const Tensor mass = theirs.exp().sum(1);
  const auto by_levels = [&](const Tensor& sum) {
    if (!sum.requires_grad()) return at::zeros_like(levels);
    const Tensor g = torch::autograd::grad({sum}, {levels}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true)[0];
    return g.defined() ? g : at::zeros_like(levels);
  };
  const Tensor of_kl = by_levels(kl.sum() + mirrored.sum()), of_mass = by_levels(mass.sum());
  return at::cat({at::stack({kl, mass.detach(), w.exp().sum(1).detach()}, 1), of_kl, of_mass}, 1);
}

Tensor levels_of(const Tensor& f, const LevelNetwork& network, const O& o) {
  if (o.bounds == O::Bounds::fixed) return at::tensor({o.lower, o.upper}, at::kDouble).expand({f.size(0), 2});
  const Tensor h = at::tanh(at::matmul(f.to(network.w1.scalar_type()), network.w1.t()) + network.b1);
  const Tensor out = at::sigmoid(at::matmul(h, network.w2.t()) + network.b2);  // [C,2]
  const Tensor upper = out.select(1, 0);
  return at::stack({upper * out.select(1, 1), upper}, 1);
}

}  // namespace

DacLoss dac_kl_loss(const Rows& student, const Rows& teacher, const Tensor& mask, const LevelNetwork& network,
                    const O& o, double tokens_in_step) {
  if (!o.high_density && !o.target_class) fail("option --high-density: without it and --target-class no class is left");
  const CountedTokens c = counted_tokens(student, teacher, {}, mask, Reduction::token_mean, tokens_in_step);
  const int64_t count = c.places.numel();
  const Tensor f = o.bounds == O::Bounds::fixed
                       ? at::zeros({count, 0}, at::kDouble)
                       : row_block_values(c.student, c.teacher, [&](const Tensor& s, const Tensor& t, int64_t) {
                           return features(s, t, o);
                         }).reshape({count, -1});
  DacLoss result;
  const Tensor levels = count > 0 ? levels_of(f, network, o) : at::zeros({0, 2}, at::kDouble);  // differentiable
  const Tensor none = at::zeros_like(c.weights);
  const RowBlockLoss walked = row_block_loss(
      c.student, c.teacher,
      [&](const Tensor& s, const Tensor& t, int64_t first) {
        return clipped(s, t, levels.narrow(0, first, s.size(0)), o);
      },
      at::stack({c.weights, none, none, none, none, none, none}, 1));
  const Tensor values = walked.values.to(at::kDouble).reshape({-1, 7});
  result.levels = levels.detach();
  result.token_loss = values.select(1, 0), result.kept_teacher_mass = values.select(1, 1);
  result.effective_classes = values.select(1, 2);

  const Tensor missing = (o.coverage_floor - result.kept_teacher_mass).clamp_min(0);
  result.coverage_penalty = o.coverage_weight * (c.weights * missing.square()).sum();
  // Through the levels: what the walk knows is each token's derivative by its own two.
  const Tensor upstream =
      c.weights.unsqueeze(1) *
      (values.narrow(1, 3, 2) - 2 * o.coverage_weight * missing.unsqueeze(1) * values.narrow(1, 5, 2));
  const Tensor through = at::where(upstream == 0, 0.0, upstream * levels).sum();
  result.loss = walked.loss + result.coverage_penalty + (through - through.detach());
  return result;
}

Tensor spans_where(const Tensor& mask, const std::function<bool(int64_t, int64_t, int64_t)>& closes) {
  const Tensor counted = mask.contiguous();
  const bool* counts = counted.const_data_ptr<bool>();
  const int64_t length = mask.size(1);
  std::vector<int64_t> spans;
  for (int64_t row = 0; row < mask.size(0); ++row, counts += length) {
    int64_t first = -1;  // of the span that is open
    for (int64_t t = 0; t < length; ++t) {
      if (!counts[t]) continue;
      if (first < 0) first = t;
      const bool last = t + 1 == length || !counts[t + 1];
      if (!last && !closes(row, first, t)) continue;
      spans.insert(spans.end(), {row, first, t});
      first = -1;
    }
  }
  return at::tensor(spans, at::kLong).reshape({static_cast<int64_t>(spans.size()) / 3, 3});
}

bool closes_phrase(std::string_view token) {
  const size_t last = token.find_last_not_of(" \t\r");
  return last != std::string_view::npos &&
         std::string_view(".,;:!?)]}\"\n").find(token[last]) != std::string_view::npos;
}

Tensor span_loss(const Rows& student, const Rows& teacher, const Tensor& spans, int64_t length, O::Norm norm) {
  std::vector<int64_t> places;  // both rows of each pair
  std::vector<double> weights;  // of each pair, at both: the value stands at the first, the second adds 0
  double counted = 0;
  for (int64_t i = 0; i < spans.size(0); ++i) {
    const int64_t begin = spans[i][1].item<int64_t>(), end = spans[i][2].item<int64_t>();
    const int64_t row = spans[i][0].item<int64_t>() * length;
    if (begin < 0 || end >= length || row + end >= student.hidden.size(0))
      fail("span {}: tokens {} to {} are not all in a response of {}", i + 1, begin, end, length);
    if (end <= begin) continue;
    ++counted;
    for (int64_t t = begin; t < end; ++t) {
      places.insert(places.end(), {row + t, row + t + 1});
      weights.insert(weights.end(), 2, 1 / static_cast<double>(end - begin));
    }
  }
  Tensor loss = at::zeros({}, at::kDouble);
  constexpr int64_t rows_at_once = 128;  // a pair's rows stay in one block
  const auto total = static_cast<int64_t>(places.size());
  const Tensor all = at::tensor(places, at::kLong), weight = at::tensor(weights, at::kDouble) / std::max(1.0, counted);
  for (int64_t first = 0; first < total; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, total - first);
    const Tensor here = all.narrow(0, first, rows);
    loss = loss + row_block_loss(
                      rows_at(student, here), rows_at(teacher, here),
                      [&](const Tensor& s, const Tensor& t, int64_t) {
                        const auto product = [](const Tensor& logits) {
                          const Tensor p = at::softmax(logits, 1).unflatten(0, {-1, 2});  // [n/2,2,V]
                          return p.select(1, 0) * p.select(1, 1);
                        };
                        const Tensor difference = product(t) - product(s);
                        const Tensor d = norm == O::Norm::l2 ? difference.norm(2, 1) : difference.square().sum(1);
                        return at::stack({d, at::zeros_like(d)}, 1).reshape(-1);
                      },
                      weight.narrow(0, first, rows), std::numeric_limits<int64_t>::max())
                      .loss;
  }
  return loss;
}

Correction find_corrections(const Rows& student, const Rows& teacher, const Tensor& student_tokens,
                            const Tensor& teacher_tokens, const Tensor& mask) {
  const CountedTokens c = counted_tokens(student, teacher, {}, mask);
  HeadRequest request;
  request.divergences = {divergence("kl").from_reference()};
  const at::NoGradGuard no_grad;
  Correction result;
  result.token_kl =
      at_places(head_statistics(c.student, c.teacher, request).divergences[0].to(at::kDouble), c.places, mask);
  for (int64_t b = 0; b < mask.size(0); ++b) {
    int64_t position = -1;
    double largest = -infinity;
    std::vector<int64_t> said;
    std::vector<size_t> before;  // tokens of the response before each place
    for (int64_t t = 0; t < mask.size(1); ++t) {
      before.push_back(said.size());
      if (!mask[b][t].item<bool>()) continue;
      said.push_back(student_tokens[b][t].item<int64_t>());
      const double kl = result.token_kl[b][t].item<double>();
      if (said.back() != teacher_tokens[b][t].item<int64_t>() && kl > largest) position = t, largest = kl;
    }
    const int64_t replacement = position < 0 ? -1 : teacher_tokens[b][position].item<int64_t>();
    if (position >= 0) {
      said.resize(before[static_cast<size_t>(position)]);
      said.push_back(replacement);
    }
    result.position.push_back(position), result.replacement.push_back(replacement);
    result.prefix.push_back(std::move(said));
  }
  return result;
}

}  // namespace kullback
