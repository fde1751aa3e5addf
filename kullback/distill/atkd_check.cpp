// How the cases of atkd's golden fixture are computed.

#include <ATen/ATen.h>

#include "kullback/distill/atkd.h"
#include "kullback/distill/fixture_rows.h"

namespace kullback {
namespace {

CheckOutputs loss_case(CheckCase& c) {
  const AtkdLoss l = atkd_loss(fixture_rows(c, "student"), fixture_rows(c, "teacher"), c.tensor("labels"),
                               c.mask("mask"), fixture_options<AtkdOptions>(c, "atkd"));
  return {{"loss", l.loss},
          {"easy_dkd", l.easy_dkd},
          {"hard_tkd", l.hard_tkd},
          {"hard_dkd", l.hard_dkd},
          {"n_easy", l.easy_tokens},
          {"n_hard", l.hard_tokens},
          {"hard", l.hard},
          {"teacher_uncertainty", l.uncertainty},
          {"tkd", l.tkd},
          {"dkd", l.dkd},
          {"token_mean_kl", l.token_mean_kl}};
}

const RegisteredCheck check{"atkd", "", loss_case};

}  // namespace
}  // namespace kullback
