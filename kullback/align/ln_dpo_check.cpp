// LN-DPO's fixture: losses, and the analysis of samples.
#include <ATen/ATen.h>

#include "kullback/align/ln_dpo.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

CheckOutputs analysis(CheckCase& c) {
  const SampleAnalysis a = analyse_samples(c.tensor("policy_logps"), c.tensor("reference_logps"), c.mask("mask"));
  return {{"kl_sequence", a.kl_sequence},
          {"kl_token", a.kl_token},
          {"kl_k3_sequence", a.kl_k3_sequence},
          {"length_mean", a.length_mean},
          {"length_std", a.length_std},
          {"length_max", a.length_max},
          {"empty", a.empty}};
}

const RegisteredCheck check{"ln-dpo", "analysis", analysis};

}  // namespace
}  // namespace kullback
