#include "kullback/align/h_dpo.h"

#include <ATen/ATen.h>

#include "kullback/train/pairwise.h"
#include "kullback/train/recipe.h"

namespace kullback {

PreferenceLoss hdpo_loss(const PreferenceBatch& batch, const HdpoOptions& o) {
  const auto reward = [&](const Side& side) {  // [B]
    Score s = score(side);
    s.policy = o.alpha * s.policy;
    return o.beta * s.log_ratio();
  };
  const at::Tensor w = reward(batch.chosen), l = reward(batch.rejected), z = w - l;
  return pairwise_loss(batch, logistic_loss(z), w, l, z);
}

namespace {

const Registered h_dpo{
    preference_method<HdpoOptions>("h-dpo")
        .summary("DPO with control of entropy: one number makes the policy sharper or flatter than DPO's")
        .formula("loss = mean over pairs of -log sigmoid(alpha * beta * (L_w - L_l) - beta * (R_w - R_l))\n"
                 "L    = log policy(y | prompt), R = log reference(y | prompt), of the chosen (w) and rejected (l) "
                 "response\n"
                 "Its minimiser is reference^(1/alpha) exp(r / (alpha beta)) / Z, the maximiser of\n"
                 "E[r] + alpha beta H(policy) + beta E[log reference].")
        .when("alpha a little below 1 where one right answer counts (mathematics, code), above 1 where answers should "
              "differ. The first loss is not log 2, and far from 1 longer responses get a head start: log lengths.")
        .paper({"Entropy Controllable Direct Preference Optimization", "2411.07595", ""})
        .option("alpha", &HdpoOptions::alpha, positive, "weight of the policy's entropy; 1 is DPO", "paper")
        .option("beta", &HdpoOptions::beta, positive, "strength of the pull to the reference", "TRL")
        .loss(hdpo_loss)};

}  // namespace
}  // namespace kullback
