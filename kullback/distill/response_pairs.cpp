#include "kullback/distill/response_pairs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kullback/distill/reduction.h"
#include "kullback/divergence/row_blocks.h"

namespace kullback {
namespace {

using at::Tensor;

Side side(const Responses& r) {
  const Tensor places = r.mask.reshape(-1).nonzero().squeeze(1);
  const Tensor labels = r.labels.reshape(-1).index_select(0, places);
  const auto logps = [&](const Rows& rows) {
    const Tensor counted = label_logps(rows_at(rows, places), labels);
    return at_places(counted, places, r.mask);
  };
  Side side{.logps = logps(r.student), .reference_logps = {}, .mask = r.mask, .divergences = {}};
  if (r.teacher.hidden.defined()) {
    const at::NoGradGuard no_grad;
    side.reference_logps = logps(r.teacher);
  }
  return side;
}

}  // namespace

PreferenceBatch response_pairs(const Responses& chosen, const Responses& rejected) {
  PreferenceBatch batch{.chosen = side(chosen), .rejected = side(rejected), .weight = {}};
  batch.pairs_in_step = chosen.sequences_in_step;
  batch.chosen_tokens_in_step = chosen.tokens_in_step, batch.rejected_tokens_in_step = rejected.tokens_in_step;
  return batch;
}

}  // namespace kullback
