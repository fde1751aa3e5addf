#include "kullback/align/fpo.h"

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;
using Sae = FpoOptions::Sae;
using Pool = FpoOptions::Pool;
using TopkSource = FpoOptions::TopkSource;

namespace {

/// [B,M] bool: the k largest of each row, ties to the first.
Tensor largest(const Tensor& values, int64_t k) {
  const Tensor order = values.detach().argsort(/*stable=*/true, -1, /*descending=*/true).narrow(-1, 0, k);
  return at::zeros(values.sizes(), at::kBool).scatter(-1, order, true);
}

/// Squared distance of the strongest features, a k-th each. [B]
Tensor feature_distance(const Tensor& policy, const Tensor& reference, const FpoOptions& o) {
  Tensor compared = largest(policy, o.k);
  if (o.topk_source == TopkSource::both) compared = compared | largest(reference, o.k);
  return masked((policy - reference).square(), compared).sum(-1) / o.k;
}

void check_features(const Autoencoder& autoencoder, const FpoOptions& o) {
  if (o.k > autoencoder.encoder.size(1))
    fail("option --k: {} features are wanted of {}", o.k, autoencoder.encoder.size(1));
}

Tensor mean_logps(const Score& s) { return s.policy / s.length.clamp_min(1); }

}  // namespace

Tensor pooled_features(const Autoencoder& autoencoder, const Tensor& hidden, const Tensor& mask, const FpoOptions& o) {
  const Tensor features = autoencoder.features(masked(hidden, mask.unsqueeze(-1)));
  const Tensor sum = masked(features, mask.unsqueeze(-1)).sum(1);
  return o.pool == Pool::padded_mean ? sum / static_cast<double>(mask.size(1))
                                     : sum / token_counts(mask, sum).clamp_min(1).unsqueeze(-1);
}

PreferenceLoss fpo_loss(const PreferenceBatch& batch, const Autoencoder& autoencoder, const FpoOptions& o,
                        const FpoReference* stored) {
  check_features(autoencoder, o);
  const Score w = score(batch.chosen), l = score(batch.rejected);
  const auto pooled = [&](const Tensor& hidden, const Tensor& mask) {
    return pooled_features(autoencoder, hidden, mask, o);
  };
  const Tensor features_w = pooled(batch.chosen.hidden, batch.chosen.mask),
               features_l = pooled(batch.rejected.hidden, batch.rejected.mask);
  FpoReference reference;
  if (stored != nullptr) {
    reference = *stored;
  } else {
    reference = {.margin = w.reference / w.length.clamp_min(1) - l.reference / l.length.clamp_min(1),
                 .chosen_features = pooled(batch.chosen.reference_hidden, batch.chosen.mask),
                 .rejected_features = pooled(batch.rejected.reference_hidden, batch.rejected.mask)};
  }
  const Tensor distance_w = feature_distance(features_w, reference.chosen_features, o),
               distance_l = feature_distance(features_l, reference.rejected_features, o);
  const Tensor gain = mean_logps(w) - mean_logps(l) - reference.margin;  // [B]
  const Tensor u = gain - o.alpha * (distance_l - (o.stop_gradient ? distance_w.detach() : distance_w));
  PreferenceLoss loss = pairwise_loss(batch, logistic_loss(o.beta * u), o.beta * (w.mean_log_ratio() + distance_w),
                                      o.beta * (l.mean_log_ratio() + distance_l), o.beta * u);
  loss.parts.insert({{"margin_u", u.detach()},
                     {"reference_margin", reference.margin},
                     {"chosen_feature_mse", distance_w.detach()},
                     {"rejected_feature_mse", distance_l.detach()},
                     {"policy_chosen_features", features_w.detach()},
                     {"policy_rejected_features", features_l.detach()},
                     {"accuracy", ((stored != nullptr ? u : gain) > 0).to(at::kDouble).mean()}});
  return loss;
}

namespace {

const Registered fpo{
    preference_method<FpoOptions>("fpo")
        .summary("A preference loss a token whose policy is held by the sparse features of its hidden states")
        .formula("loss = mean over pairs of -log sigmoid(beta * u)\n"
                 "u    = m(chosen) - m(rejected) - alpha * (D(rejected) - stop_gradient(D(chosen)))\n"
                 "m    = mean over tokens of log policy - log reference\n"
                 "D    = mean over the k strongest features of (mean feature of policy - of reference)^2")
        .when(
            "When a KL over the whole vocabulary costs too much and a sparse autoencoder of the model's hidden states "
            "is at hand: a safetensors file with W_enc, b_enc and, for jumprelu, threshold. `kullback autoencoder` "
            "trains one of the model itself, with plain ReLUs (--sae relu), at the --layer that fpo is then told.")
        .paper({"Constrain Alignment with Sparse Autoencoders", "2411.07618", "ICML 2025"})
        .option("beta", &FpoOptions::beta, positive, "scale of the margin", "authors' configuration")
        .option("alpha", &FpoOptions::alpha, non_negative, "weight of the features' distance", "paper")
        .option("k", &FpoOptions::k, at_least(1), "how many of the strongest features are compared", "authors' code")
        .option(
            "layer", &FpoOptions::layer, non_negative,
            "after which block, from 1, the autoencoder reads the residual stream; 0: the last hidden state after the "
            "final norm, as in the authors' code")
        .option("sae", &FpoOptions::sae, {{"jumprelu", Sae::jumprelu}, {"relu", Sae::relu}}, "kind of encoder")
        .option("pool", &FpoOptions::pool, {{"masked_mean", Pool::masked_mean}, {"padded_mean", Pool::padded_mean}},
                "mean over the response's tokens, or over the batch's padded length as in the authors' code")
        .option("topk-source", &FpoOptions::topk_source, {{"policy", TopkSource::policy}, {"union", TopkSource::both}},
                "whose strongest features are compared: the policy's, or those of both models")
        .option("stop-gradient", &FpoOptions::stop_gradient, "none through the chosen response's distance", "paper")
        .option("autoencoder", &FpoOptions::autoencoder, "safetensors file of the sparse autoencoder")
        .needs([](const FpoOptions& o) {
          Needs needs{.reference_logps = true, .hidden = true, .hidden_layer = o.layer};
          if (!o.autoencoder.empty())
            needs.hidden_width = read_autoencoder(o.autoencoder, o.sae == Sae::jumprelu).encoder.size(0);
          return needs;
        })
        .validate([](const FpoOptions& o) {
          if (o.autoencoder.empty())
            fail("option --autoencoder: fpo needs the file of a sparse autoencoder; `kullback autoencoder` makes one");
          check_features(read_autoencoder(o.autoencoder, o.sae == Sae::jumprelu), o);
        })
        .loss([](const PreferenceBatch& batch, const FpoOptions& o) {
          return fpo_loss(batch, read_autoencoder(o.autoencoder, o.sae == Sae::jumprelu), o);
        })};

}  // namespace
}  // namespace kullback
