#include "kullback/distill/reduced_vocab.h"

#include <limits>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {

using at::Tensor;
using Pool = ReducedVocabOptions::Pool;
using HiddenLoss = ReducedVocabOptions::HiddenLoss;
using NegativesFrom = ReducedVocabOptions::NegativesFrom;
using LayerMerge = ReducedVocabOptions::LayerMerge;

AlignedRows matched_rows(const Tensor& student_mask, const Tensor& teacher_mask) {
  const auto places = [](const Tensor& mask) { return mask.reshape(-1).nonzero(); };  // [N,1]
  const AlignedRows rows{places(student_mask), places(teacher_mask).squeeze(1)};
  if (rows.student.size(0) != rows.teacher.size(0)) {
    fail("{} rows of the student are matched with {} of the teacher", rows.student.size(0), rows.teacher.size(0));
  }
  return rows;
}

AlignedRows reduced_rows(const Tensor& groups, const Tensor& teacher_mask, int64_t student_length) {
  const Tensor first = (at::arange(groups.size(0)) * student_length).reshape({-1, 1, 1});
  const Tensor places = at::where(groups < 0, groups, groups + first).flatten(0, 1);  // [B T', G]
  const Tensor standing = teacher_mask.reshape(-1) & (places >= 0).any(1);
  const Tensor teacher = standing.nonzero().squeeze(1);
  return {places.index_select(0, teacher), teacher};
}

Tensor pooled_rows(const Tensor& table, const Tensor& groups, Pool pool) {
  const Tensor there = groups >= 0;  // [N,G]
  if (pool == Pool::last) return table.index_select(0, std::get<0>(groups.max(1)));
  const Tensor rows =
      table.index_select(0, groups.clamp_min(0).reshape(-1)).reshape({groups.size(0), groups.size(1), table.size(1)});
  const Tensor sum = at::where(there.unsqueeze(2), rows, at::zeros({}, rows.options())).sum(1);
  return pool == Pool::sum ? sum : sum / there.sum(1, true).clamp_min(1);
}

namespace {

/// Logits are linear in the hidden states, so that pooled states give pooled logits; where they are not, only one row will do.
Rows pooled(Rows rows, const Tensor& groups, Pool pool) {
  const bool single = groups.size(1) == 1 || pool == Pool::last;
  if (!single && (rows.softcap > 0 || (rows.bias.defined() && pool == Pool::sum)))
    fail("option --pool: the student's head has a {}, with which only last is exact",
         rows.softcap > 0 ? "soft-cap" : "bias");
  rows.hidden = pooled_rows(rows.hidden, groups, pool);
  return rows;
}

/// The rows' laws over a choice of tokens alone.
Rows with_columns(Rows rows, const Tensor& columns) {
  if (rows.make) {
    rows.make = [make = rows.make, columns](const Tensor& hidden) { return make(hidden).index_select(1, columns); };
    rows.vocabulary = columns.numel();
    return rows;
  }
  if (rows.weight.defined()) {
    rows.weight = rows.weight.index_select(0, columns);
  } else {
    rows.hidden = rows.hidden.index_select(1, columns);
  }
  if (rows.bias.defined()) rows.bias = rows.bias.index_select(0, columns);
  rows.vocabulary = 0;
  return rows;
}

Tensor equal_shares(int64_t rows, double scale) {
  return at::full({rows}, scale / static_cast<double>(std::max<int64_t>(1, rows)), at::kDouble);
}

}  // namespace

Tensor shared_columns_kl(const Rows& student, const Rows& teacher, const AlignedRows& rows,
                         const Tensor& student_columns, const Tensor& teacher_columns, const ReducedVocabOptions& o) {
  Rows ours = with_columns(pooled(student, rows.student, o.pool), student_columns);
  Rows theirs = with_columns(rows_at(teacher, rows.teacher), teacher_columns);
  ours.temperature *= o.temperature, theirs.temperature *= o.temperature;
  HeadRequest request;
  request.divergences = {divergence("kl").from_reference()};
  HeadStatistics weights;
  weights.divergences = {equal_shares(rows.teacher.size(0), o.temperature * o.temperature)};
  return head_loss(ours, theirs, request, weights).loss;
}

Tensor mapped_columns_kl(const Rows& student, const Rows& teacher, const AlignedRows& rows, const Tensor& map,
                         const Tensor& mapped, const ReducedVocabOptions& o) {
  const Tensor pieces = map.index_select(0, mapped);  // [M,G]
  const Tensor nothing = at::scalar_tensor(o.sum_probs ? -std::numeric_limits<double>::infinity() : 0.0);
  const RowFunction of_rows = [&](const Tensor& ours, const Tensor& theirs, int64_t) {
    const Tensor logits =
        ours.index_select(1, pieces.clamp_min(0).reshape(-1)).reshape({ours.size(0), pieces.size(0), pieces.size(1)});
    const Tensor there = at::where(pieces >= 0, logits, nothing.to(logits.scalar_type()));
    const Tensor made = o.sum_probs ? there.logsumexp(2) : there.sum(2);
    Rows s, t;
    s.hidden = made / o.temperature, t.hidden = theirs.index_select(1, mapped) / o.temperature;
    HeadRequest request;
    request.divergences = {divergence("kl").from_reference()};
    return head_statistics(s, t, request).divergences[0];
  };
  const Tensor weights = equal_shares(rows.teacher.size(0), o.temperature * o.temperature);
  return row_block_loss(pooled(student, rows.student, o.pool), rows_at(teacher, rows.teacher), of_rows, weights,
                        (64 << 20) / pieces.size(1))
      .loss;
}

Tensor merged_layers(const std::vector<Tensor>& layers, size_t other_layers, const ReducedVocabOptions& o) {
  std::vector<Tensor> chosen;
  const auto count = std::ssize(layers);
  switch (o.layer_merge) {
    case LayerMerge::average: chosen = layers; break;
    case LayerMerge::last: chosen = {layers.back()}; break;
    case LayerMerge::skip: {  // evenly spaced, the last among them, as many as both have
      const auto wanted = std::min(count, static_cast<std::ptrdiff_t>(other_layers));
      for (std::ptrdiff_t i = 1; i <= wanted; ++i)
        chosen.push_back(layers[static_cast<size_t>(i * count / wanted - 1)]);
      break;
    }
    case LayerMerge::ids:
      for (const int64_t id : o.layer_ids) {
        const int64_t place = id < 0 ? id + count : id;
        if (place < 0 || place >= count) fail("option --layer-ids: {} is not among the {} layers", id, count);
        chosen.push_back(layers[static_cast<size_t>(place)]);
      }
      break;
  }
  return at::stack(chosen).mean(0);
}

HiddenDistance hidden_distance(const Tensor& student, const Tensor& teacher, const Tensor& negatives,
                               const ReducedVocabOptions& o) {
  const auto rows = static_cast<double>(std::max<int64_t>(1, teacher.size(0)));
  if (o.hidden_loss == HiddenLoss::mse) return {(student - teacher).square().sum() / rows, {}};
  const auto unit = [](const Tensor& v) { return v / v.norm(2, 1, true).clamp_min(1e-8); };
  const Tensor s = unit(student), t = unit(teacher);
  const Tensor own = (s * t).sum(1);  // [N]
  const bool from_student = o.negatives_from == NegativesFrom::student;
  const Tensor cosines = from_student ? at::matmul(t, s.t()) : at::matmul(s, t.t());  // [N,N] anchor j, other k
  const Tensor all = at::cat({own.unsqueeze(1), cosines.gather(1, negatives)}, 1);
  return {(all.logsumexp(1) - own).sum() / rows, own.detach()};
}

}  // namespace kullback
