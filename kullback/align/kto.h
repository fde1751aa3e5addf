#pragma once

#include <utility>
#include <vector>

#include "kullback/train/preference.h"

namespace kullback {

/// KTO: single good-or-bad labels, valued against a reference point. Ethayarajh et al. 2024, arXiv 2402.01306.
struct KtoOptions {
  enum class Variant { kto, zero, logsigmoid, surprisal };
  enum class Partner { next, previous };
  double beta = 0.1;                                    ///< > 0
  double desirable_weight = 1, undesirable_weight = 1;  ///< > 0
  Variant variant = Variant::kto;
  Partner kl_partner = Partner::next;  ///< whose response a row's prompt gets in the estimate of the reference point

  bool reference() const { return variant != Variant::surprisal; }
  bool reference_point() const { return variant != Variant::zero; }
};

/// Responses with a label each.
struct KtoRows {
  Side responses;
  at::Tensor desirable;  ///< [B] bool
  Side mismatched;       ///< responses to other prompts, for the reference point; unused by `zero`
  at::Tensor weight;     ///< [B]; undefined: all 1
};
struct KtoLoss {
  at::Tensor losses;      ///< [B]
  at::Tensor z0;          ///< scalar, detached
  at::Tensor log_ratios;  ///< [B]
};
KtoLoss kto_rows_loss(const KtoRows& rows, const KtoOptions& options);

/// 1 - sigmoid(a): what a response of value a loses. Elementwise.
at::Tensor kto_value_loss(const at::Tensor& a);

/// Pairs as rows: those present of chosen are desirable, of rejected undesirable. Parts: `z0`, `reward_desirable`,
/// `reward_undesirable` of the rows that there are.
PreferenceLoss kto_loss(const PreferenceBatch& batch, const KtoOptions& options);

/// How many rows on the response is that a row's prompt is scored with.
int64_t partner_offset(KtoOptions::Partner partner);

/// Weights of desirable and undesirable rows with desirable_weight n_D / (undesirable_weight n_U) = ratio, the smaller one 1.
std::pair<double, double> kto_weights(double desirable, double undesirable, double ratio);

}  // namespace kullback
