// What pd keeps of the teacher's rows, and the law that this makes.
#include <algorithm>

#include <ATen/ATen.h>

#include "kullback/base/options.h"
#include "kullback/distill/pd.h"

namespace kullback {

using at::Tensor;
using Adaptive = PdOptions::Adaptive;

PdTarget pd_truncate(const Rows& teacher, double p, int64_t k) {
  const int64_t vocabulary = teacher.vocabulary > 0     ? teacher.vocabulary
                             : teacher.weight.defined() ? teacher.weight.size(0)
                                                        : teacher.hidden.size(1);
  const HeadStatistics top =
      head_statistics(teacher, {.labels = {}, .scores = {}, .top_k = std::min(k, vocabulary), .divergences = {}});
  const Tensor mass = top.top_logps.to(at::kDouble).exp();
  const Tensor before = mass.cumsum(1) - mass;
  PdTarget target{.ids = top.top_ids, .logps = top.top_logps, .kept = (before < p) & (top.top_logps > -unbounded)};
  target.ids = target.ids.masked_fill(~target.kept, 0);
  return target;
}

std::vector<TeacherRow> pd_rows(const PdTarget& target, const Tensor& label_logps) {
  const Tensor ids = target.ids.contiguous(), logps = target.logps.to(at::kDouble).contiguous(),
               kept = target.kept.contiguous();
  const Tensor labels = label_logps.defined() ? label_logps.to(at::kDouble).contiguous() : Tensor();
  std::vector<TeacherRow> rows(static_cast<size_t>(ids.size(0)));
  for (int64_t n = 0; n < ids.size(0); ++n) {
    TeacherRow& row = rows[static_cast<size_t>(n)];
    for (int64_t i = n * ids.size(1); i < (n + 1) * ids.size(1); ++i) {
      if (!kept.const_data_ptr<bool>()[i]) continue;
      row.ids.push_back(static_cast<int32_t>(ids.const_data_ptr<int64_t>()[i]));
      row.logps.push_back(logps.const_data_ptr<double>()[i]);
    }
    if (labels.defined()) row.label_logp = labels.const_data_ptr<double>()[n];
  }
  return rows;
}

Tensor pd_expected(const Tensor& law, const Tensor& g) { return (law * g.masked_fill(law == 0, 0)).sum(1); }

namespace {

/// log F [N,K]: the kept row at a temperature [N,1], -inf where nothing is kept.
Tensor log_law(const PdTarget& t, const Tensor& temperature) {
  return at::log_softmax(t.logps.to(at::kDouble).masked_fill(~t.kept, -unbounded) / temperature, 1);
}

/// Each row's temperature. [N,1]
Tensor temperatures(const PdTarget& t, const PdOptions& o) {
  const Tensor fixed = at::full({t.ids.size(0), 1}, o.temperature, at::kDouble);
  const Tensor count = t.kept.sum(1, true).to(at::kDouble);
  if (o.adaptive == Adaptive::std) {
    const Tensor logps = t.logps.to(at::kDouble).masked_fill(~t.kept, 0);
    const Tensor mean = logps.sum(1, true) / count;
    const Tensor std = ((logps - mean).square().masked_fill(~t.kept, 0).sum(1, true) / count).sqrt();
    return at::where(std < 1e-6, fixed, o.temperature * std);
  }
  if (o.adaptive == Adaptive::entropy) {
    const Tensor log_f = log_law(t, at::ones({1}, at::kDouble)), f = log_f.exp();
    const Tensor share = at::where(count > 1, -pd_expected(f, log_f).unsqueeze(1) / at::log(count), 0);
    return o.tau_high - (o.tau_high - o.tau_low) * share;
  }
  return fixed;
}

}  // namespace

Tensor pd_law(const PdTarget& target, const PdOptions& options) {
  return log_law(target, temperatures(target, options)).exp();
}

Tensor pd_row_weights(const PdTarget& t, const PdOptions& o) {
  if (o.adaptive != Adaptive::wttm) return at::ones({t.ids.size(0)}, at::kDouble);
  return (log_law(t, at::ones({1}, at::kDouble)) / o.temperature).exp().sum(1);
}

}  // namespace kullback
