// The cases of CPL's fixture: labelled pairs, rankings, a deterministic head, and token trees that are enumerated.
#include <ATen/ATen.h>

#include "kullback/align/cpl.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"
#include "kullback/world/optimum.h"
#include "kullback/world/sequences.h"

namespace kullback {
namespace {

using at::Tensor;

CplOptions options_of(CheckCase& c) {
  CplOptions o;
  Json given = c.options();
  given.erase("vocab"), given.erase("length");
  if (c.op() == "exact" && !given.contains("contrastive_bias")) given["contrastive_bias"] = 1;
  find_method("cpl").options->assign(&o, given, c.where());
  return o;
}

Side segment(CheckCase& c, const std::string& suffix) {
  Side side{.logps = c.tensor("policy_logps" + suffix),
            .reference_logps = {},
            .mask = c.mask("mask" + suffix),
            .divergences = {}};
  if (c.has("reference_logps" + suffix)) side.reference_logps = c.tensor("reference_logps" + suffix);
  return side;
}

const PreferenceBatch whole{.chosen = {}, .rejected = {}, .weight = {}};

CheckOutputs pairs(CheckCase& c) {
  return preference_outputs(cpl_loss({segment(c, "_1"), segment(c, "_2"), c.tensor("label")}, whole, options_of(c)));
}

/// Ranking form: segments with a score each; every pair of different scores is a comparison.
CheckOutputs rank(CheckCase& c) {
  const CplOptions o = options_of(c);
  const Tensor advantage = cpl_advantage(segment(c, ""), o), score = c.tensor("score");  // [N]
  const Tensor above = score.unsqueeze(1) > score.unsqueeze(0);  // [N,N]: the row's segment is the better one
  const Tensor winner = advantage.unsqueeze(1), loser = advantage.unsqueeze(0), count = above.sum();
  return {{"loss", masked(cpl_pair_loss(winner, loser, o.contrastive_bias), above).sum() / count.clamp_min(1)},
          {"pairs", count},
          {"accuracy", ((winner > loser) & above).sum().to(at::kDouble) / count.clamp_min(1)},
          {"advantage", advantage}};
}

/// Log-density of actions under a deterministic head, up to a constant: -|action - mean|^2. [B,T,A] each -> [B,T]
CheckOutputs gaussian(CheckCase& c) {
  return {{"policy_logps", -(c.tensor("action") - c.tensor("action_mean")).square().sum(-1)}};
}

/// All ordered pairs of whole sequences, equally likely, labelled by the regrets of the soft-optimal policy.
CheckOutputs exact(CheckCase& c) {
  const CplOptions o = options_of(c);
  const SequenceSpace space{
      .vocabulary = c.option<int64_t>("vocab", 2), .length = c.option<int64_t>("length", 1), .ends = false};
  const Tensor reward = c.tensor("reward");
  const Optimum best = optimum(at::zeros_like(reward), reward, o.alpha);
  const int64_t count = reward.size(0);
  // The fixture counts "first over second" alone of each ordered pair, half of the mass, and takes the optimum's loss at
  // bias 1, where it is the entropy of the labels.
  const auto loss = [&](const Tensor& logps, double bias) {  // of sequences: one step each, as nothing is discounted
    CplOptions at_bias = o;
    at_bias.contrastive_bias = bias;
    const auto side = [&](const Tensor& sequences) {
      return Side{.logps = logps.index_select(0, sequences).unsqueeze(1),
                  .reference_logps = {},
                  .mask = at::ones({count * count, 1}, at::kBool),
                  .divergences = {}};
    };
    const Tensor index = at::arange(count, at::kLong);
    const Tensor first = index.repeat_interleave(count), second = index.repeat({count});
    const Tensor regret = o.alpha * (best.logps.index_select(0, second) - best.logps.index_select(0, first));
    return cpl_loss({side(first), side(second), at::sigmoid(regret)}, whole, at_bias).value / 2;
  };
  const Tensor rows = at::log_softmax(c.tensor("policy_table"), -1).unsqueeze(0);
  return {{"loss", loss(response_logps(space, rows).squeeze(0), o.contrastive_bias)},
          {"loss_at_optimum", loss(best.logps, 1)},
          {"optimal_logps", best.logps},
          {"soft_value", o.alpha * best.log_partition}};
}

const RegisteredCheck pairs_check{"cpl", "", pairs}, rank_check{"cpl", "rank", rank},
    gaussian_check{"cpl", "gaussian", gaussian}, exact_check{"cpl", "exact", exact};

}  // namespace
}  // namespace kullback
