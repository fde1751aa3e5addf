#include "kullback/align/d2o.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

using at::Tensor;

PreferenceLoss d2o_loss(const PreferenceBatch& batch, const D2oOptions& o) {
  const Score self = score(batch.chosen);                               // [S]
  const Tensor negative = o.alpha * score(batch.rejected).log_ratio();  // [B]
  const int64_t pairs = negative.size(0);
  const Tensor pair = batch.chosen_pair.defined() ? batch.chosen_pair : at::arange(pairs, at::kLong);
  const auto over_samples = [&](const Tensor& values) {  // [S] -> [B], sums
    return at::zeros({pairs}, values.options()).index_add(0, pair, values);
  };
  const Tensor counts = (self.length > 0).to(negative.scalar_type());  // empty ones are missing, not zeros
  const Tensor used = over_samples(counts);
  const Tensor reward = o.beta * over_samples(counts * self.log_ratio()) / used.clamp_min(1);  // [B]
  const Tensor z = reward - negative;
  PreferenceLoss loss = pairwise_loss(batch, logistic_loss(z), reward, negative, z);

  const Tensor each = logistic_loss(o.beta * self.log_ratio() - negative.index_select(0, pair)).detach();
  const Tensor instance =
      at::where(used > 0, over_samples(counts * each) / used.clamp_min(1), logistic_loss(-negative.detach()));
  loss.parts.insert({{"self_rewards", reward.detach()},
                     {"negative_rewards", negative.detach()},
                     {"gradient_weight", at::sigmoid(-z).detach()},
                     {"samples_used", used},
                     {"instance_dpo_losses", instance}});
  return loss;
}

namespace {

const Registered d2o{
    preference_method<D2oOptions>("d2o")
        .summary("Learns from bad responses only: the law of the model's own samples is preferred to each of them")
        .formula("loss = mean over prompts of -log sigmoid(beta * mean_k s_k - alpha * n)\n"
                 "s_k  = log policy(y_k | prompt) - log reference(y_k | prompt), of the model's own samples y_1..y_K\n"
                 "n    = log policy(bad | prompt) - log reference(bad | prompt)\n"
                 "The mean over samples stands inside the sigmoid: it is a law that is preferred, not an instance.")
        .when(
            "When only bad answers are labelled. The negatives' likelihood has no floor: watch KL(reference || policy) "
            "and stop early. `kullback align` takes `chosen` for the one self sample of its row, drawn beforehand "
            "under an "
            "instruction to be harmless that is left out of the prompt; `kullback world` draws k of them.")
        .paper(
            {"Negating Negatives: Alignment with Human Negative Samples via Distributional Dispreference Optimization",
             "2403.03419", "EMNLP Findings 2024"})
        .option("beta", &D2oOptions::beta, positive, "weight of the self samples", "paper")
        .option("alpha", &D2oOptions::alpha, positive, "weight of the bad response", "paper")
        .option("k", &D2oOptions::samples, at_least(1), "self samples a prompt, where they can be drawn", "paper")
        .needs([](const D2oOptions& o) { return Needs{.reference_logps = true, .samples = o.samples}; })
        .loss(d2o_loss)};

}  // namespace
}  // namespace kullback
