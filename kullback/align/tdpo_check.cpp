// The cases of TDPO's fixture that begin at a response's sums.
#include <ATen/ATen.h>

#include "kullback/align/tdpo.h"
#include "kullback/base/registry.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

CheckOutputs sequence_statistics(CheckCase& c) {
  TdpoOptions o;
  find_method("tdpo").options->assign(&o, c.options(), c.where());
  const PreferenceBatch batch{.chosen = {}, .rejected = {}, .weight = {}};
  const PreferenceLoss loss = tdpo_loss({c.tensor("chosen_logps_margin"), c.tensor("rejected_logps_margin"),
                                         c.tensor("chosen_seq_kl"), c.tensor("rejected_seq_kl")},
                                        batch, o);
  return preference_outputs(loss);
}

const RegisteredCheck check{"tdpo", "sequence_statistics", sequence_statistics};

}  // namespace
}  // namespace kullback
