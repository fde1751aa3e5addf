#include "kullback/align/r_dpo.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

PreferenceLoss rdpo_loss(const PreferenceBatch& batch, const RdpoOptions& o) {
  const Score chosen = score(batch.chosen), rejected = score(batch.rejected);
  // The labels follow r = beta log-ratio + alpha length, of which the policy shall have the first term alone.
  const at::Tensor w = o.beta * chosen.log_ratio(), l = o.beta * rejected.log_ratio();  // [B]
  const at::Tensor z = w - l + o.alpha * (chosen.length - rejected.length);
  return pairwise_loss(batch, logistic_loss(z), w, l, z);
}

namespace {

const Registered r_dpo{
    preference_method<RdpoOptions>("r-dpo")
        .summary("DPO with a price on each token, so that length is not learnt as quality")
        .formula("loss = mean over pairs of -log sigmoid(beta (s_w - s_l) + alpha (|y_w| - |y_l|))\n"
                 "s_w  = log policy(chosen | prompt) - log reference(chosen | prompt); s_l likewise\n"
                 "Its minimiser is policy(y|x) = reference(y|x) exp((r(x,y) - alpha |y|) / beta) / Z(x).")
        .when("Where the better answers of the data are the longer ones and answers grow with training. Raise alpha "
              "until held-out answers keep their length; `sampo` and `ln-dpo` take other ways to the same end.")
        .paper(
            {"Disentangling Length from Quality in Direct Preference Optimization", "2403.19159", "ACL Findings 2024"})
        .option("beta", &RdpoOptions::beta, positive, "strength of the pull to the reference", "TRL")
        .option("alpha", &RdpoOptions::alpha, non_negative, "price of a token; 0 is DPO")
        .loss(rdpo_loss)};

}  // namespace
}  // namespace kullback
