#include "kullback/align/kto.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Variant = KtoOptions::Variant;
using Partner = KtoOptions::Partner;

Tensor kto_value_loss(const Tensor& a) { return at::sigmoid(-a); }
int64_t partner_offset(Partner partner) { return partner == Partner::next ? 1 : -1; }

namespace {

/// What a response is worth: its log-ratio, or, without a reference, its mean log-probability a token. [B]
Tensor worth(const Side& side, const KtoOptions& o) {
  const Score s = score(side);
  return o.reference() ? s.log_ratio() : s.policy / s.length.clamp_min(1);
}

/// The estimate of KL(policy || reference) from mismatched rows; empty ones do not count. Scalar, detached.
Tensor reference_point(const KtoRows& rows, const KtoOptions& o, const Tensor& like) {
  if (!o.reference_point()) return at::zeros({}, like.options());
  Tensor count = (token_counts(rows.mismatched.mask, like) > 0).to(like.scalar_type());
  if (rows.weight.defined() && rows.weight.size(0) == count.size(0)) count = count * rows.weight;
  const Tensor total = count.sum();
  const Tensor mean = (count * worth(rows.mismatched, o)).sum().detach() / at::where(total > 0, total, total + 1);
  return o.reference() ? mean.clamp_min(0) : mean;
}

}  // namespace

KtoLoss kto_rows_loss(const KtoRows& rows, const KtoOptions& o) {
  const Tensor r = worth(rows.responses, o), z0 = reference_point(rows, o, r);
  const Tensor value = o.beta * at::where(rows.desirable, r - z0, z0 - r);
  const Tensor weight = at::where(rows.desirable, at::full({}, o.desirable_weight, r.options()),
                                  at::full({}, o.undesirable_weight, r.options()));
  const Tensor loss = o.variant == Variant::logsigmoid ? logistic_loss(value) : kto_value_loss(value);
  return {.losses = weight * loss, .z0 = z0, .log_ratios = r};
}

PreferenceLoss kto_loss(const PreferenceBatch& batch, const KtoOptions& o) {
  const auto both = [&](Tensor Side::*member) {
    const Tensor a = batch.chosen.*member, b = batch.rejected.*member;
    return a.defined() ? at::cat({a, b}) : Tensor();
  };
  const int64_t pairs = batch.chosen.logps.size(0);
  const KtoRows rows{.responses = {.logps = both(&Side::logps),
                                   .reference_logps = both(&Side::reference_logps),
                                   .mask = both(&Side::mask),
                                   .divergences = {}},
                     .desirable = at::arange(2 * pairs) < pairs,
                     .mismatched = batch.mismatched,
                     .weight = batch.weight.defined() ? batch.weight.repeat({2}) : Tensor()};
  const KtoLoss k = kto_rows_loss(rows, o);
  const auto halves = k.losses.chunk(2, 0), rewards = (o.beta * k.log_ratios).detach().chunk(2, 0);
  const auto presence = [&](const Tensor& given) {  // [B], 1 or 0
    return given.defined() ? given.to(k.losses.scalar_type()) : at::ones({pairs}, k.losses.options());
  };
  const Tensor has_w = presence(batch.chosen_present), has_l = presence(batch.rejected_present);
  PreferenceLoss loss = pairwise_loss(batch, (halves[0] * has_w + halves[1] * has_l) / (has_w + has_l), rewards[0],
                                      rewards[1], rewards[0] - rewards[1]);
  loss.parts["z0"] = k.z0;
  const auto log_those = [&](const std::string& name, const Tensor& values, const Tensor& has) {
    if ((has > 0).any().item<bool>()) loss.parts[name] = values.masked_select(has > 0);  // one label alone is normal
  };
  log_those("reward_desirable", rewards[0], has_w);
  log_those("reward_undesirable", rewards[1], has_l);
  return loss;
}

std::pair<double, double> kto_weights(double desirable, double undesirable, double ratio) {
  const double weight = ratio * undesirable / desirable;  // of a desirable row over that of an undesirable one
  return weight >= 1 ? std::pair(weight, 1.0) : std::pair(1.0, 1 / weight);
}

namespace {

const Registered kto{
    preference_method<KtoOptions>("kto")
        .summary("Learns from single good-or-bad labels, valued against a reference point as in prospect theory")
        .formula("loss = mean over responses of weight * (1 - sigmoid(beta * (r - z0))) if desirable,\n"
                 "       weight * (1 - sigmoid(beta * (z0 - r))) if not\n"
                 "r    = log policy(y | prompt) - log reference(y | prompt)\n"
                 "z0   = max(0, mean of r over responses put to other prompts), no gradient: an estimate of the KL")
        .when(
            "When labels say good or bad rather than better, or are few on one side: keep desirable-weight * "
            "n_desirable / (undesirable-weight * n_undesirable) between 1 and 4/3. Data: rows of prompt, "
            "completion and label, or pairs, which are taken as two labelled responses each. A batch needs two rows or "
            "more, or the mismatched prompt is the response's own.")
        .paper({"KTO: Model Alignment as Prospect Theoretic Optimization", "2402.01306", "ICML 2024"})
        .option("beta", &KtoOptions::beta, positive, "scale of the log-ratios", "authors' configuration")
        .option("desirable-weight", &KtoOptions::desirable_weight, positive, "weight of good responses", "paper")
        .option("undesirable-weight", &KtoOptions::undesirable_weight, positive, "weight of bad responses", "paper")
        .option("variant", &KtoOptions::variant,
                {{"kto", Variant::kto},
                 {"zero", Variant::zero},
                 {"logsigmoid", Variant::logsigmoid},
                 {"surprisal", Variant::surprisal}},
                "as above; reference point 0; -log sigmoid in the place of 1 - sigmoid; or mean log-probabilities "
                "without a reference")
        .option("kl-partner", &KtoOptions::kl_partner, {{"next", Partner::next}, {"previous", Partner::previous}},
                "whose response a row's prompt is scored with for the reference point", "authors' code")
        .needs([](const KtoOptions& o) {
          return Needs{.reference_logps = o.reference(),
                       .unpaired = true,
                       .mismatched = o.reference_point() ? partner_offset(o.kl_partner) : 0};
        })
        .loss(kto_loss)};

}  // namespace
}  // namespace kullback
