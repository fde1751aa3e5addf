// The cases of FPO's fixture: the loss with an autoencoder that is an input, and the autoencoder's own loss.
#include <ATen/ATen.h>

#include "kullback/align/fpo.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;

Autoencoder autoencoder(CheckCase& c, bool jump) {
  Autoencoder a{
      .encoder = c.tensor("W_enc"), .bias = c.tensor("b_enc"), .threshold = {}, .decoder = {}, .decoder_bias = {}};
  if (jump) a.threshold = c.tensor("threshold");
  if (c.has("W_dec")) a.decoder = c.tensor("W_dec"), a.decoder_bias = c.tensor("b_dec");
  return a;
}

CheckOutputs loss(CheckCase& c) {
  FpoOptions o;
  find_method("fpo").options->assign(&o, c.options(), c.where());
  const bool stored = c.has("reference_margin");
  const auto side = [&](const std::string& name) {
    Side s{.logps = c.tensor("policy_" + name + "_logps"),
           .reference_logps = {},
           .mask = c.mask(name + "_mask"),
           .divergences = {}};
    s.hidden = c.tensor("policy_" + name + "_hidden");
    if (!stored) {
      s.reference_logps = c.tensor("reference_" + name + "_logps");
      s.reference_hidden = c.tensor("reference_" + name + "_hidden");
    }
    return s;
  };
  FpoReference reference;
  if (stored) {
    reference = {.margin = c.tensor("reference_margin"),
                 .chosen_features = c.tensor("reference_chosen_features"),
                 .rejected_features = c.tensor("reference_rejected_features")};
  }
  return preference_outputs(fpo_loss({.chosen = side("chosen"), .rejected = side("rejected"), .weight = {}},
                                     autoencoder(c, o.sae == FpoOptions::Sae::jumprelu), o,
                                     stored ? &reference : nullptr));
}

CheckOutputs autoencoder_training(CheckCase& c) {
  const AutoencoderLoss l =
      autoencoder_loss(autoencoder(c, false), c.tensor("hidden"), c.mask("mask"), c.option("l1", 0.02));
  return {{"loss", l.loss}, {"reconstruction", l.reconstruction}, {"l1", l.l1}, {"l0", l.l0}};
}

const RegisteredCheck loss_check{"fpo", "", loss}, training_check{"fpo", "sae_train", autoencoder_training};

}  // namespace
}  // namespace kullback
