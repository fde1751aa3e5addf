#pragma once

#include <string>

#include "kullback/align/autoencoder.h"
#include "kullback/train/preference.h"

namespace kullback {

/// Feature-level constrained Preference Optimization: a margin a token, held by what sparse features of the hidden states
/// say. Yin et al. 2024, arXiv 2411.07618.
struct FpoOptions {
  enum class Sae { jumprelu, relu };
  enum class Pool { masked_mean, padded_mean };
  enum class TopkSource { policy, both };
  double beta = 0.1;   ///< > 0
  double alpha = 0.5;  ///< weight of the constraint, >= 0
  int64_t k = 50;      ///< features compared, >= 1
  int64_t layer = 0;   ///< after which block the autoencoder reads, from 1; 0: the last states, after the final norm
  Sae sae = Sae::jumprelu;
  Pool pool = Pool::masked_mean;
  TopkSource topk_source = TopkSource::policy;
  bool stop_gradient = true;     ///< on the chosen response's distance
  std::string autoencoder = {};  ///< safetensors file
};

/// The reference as it may be stored: its margin [B] and both responses' pooled features [B,M].
struct FpoReference {
  at::Tensor margin, chosen_features, rejected_features;
};

/// Features averaged over a response. [B,T,D] -> [B,M]
at::Tensor pooled_features(const Autoencoder& autoencoder, const at::Tensor& hidden, const at::Tensor& mask,
                           const FpoOptions& options);

/// `stored`: null where the batch holds the reference's own. Parts: `logits` = beta times `margin_u`, `reference_margin`,
/// both `*_feature_mse` [B], both `policy_*_features` [B,M], `accuracy`.
PreferenceLoss fpo_loss(const PreferenceBatch& batch, const Autoencoder& autoencoder, const FpoOptions& options,
                        const FpoReference* stored = nullptr);

}  // namespace kullback
