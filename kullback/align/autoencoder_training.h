#pragma once

#include <functional>

#include "kullback/align/autoencoder.h"

namespace kullback {

/// How a sparse autoencoder is trained: by Adam on autoencoder_loss, of states scaled to a mean squared deviation of 1, so that
/// one l1 suits models of any size. Yin et al. 2024, arXiv 2411.07618, for fpo.
struct AutoencoderTraining {
  int64_t features = 2048;                 ///< M
  double l1 = 0.02;                        ///< > 0
  int64_t steps = 1000, batch_size = 256;  ///< tokens a step
  double learning_rate = 1e-3;
  int64_t seed = 0;
};

/// How well it gives states back that it was not trained on.
struct AutoencoderFigures {
  double unexplained = 0;  ///< mean |h - decoded|^2 over mean |h - mean h|^2
  double active = 0;       ///< features that are, a token
  double dead = 0;         ///< share of features that are active at no token
};
AutoencoderFigures autoencoder_figures(const Autoencoder& autoencoder, const at::Tensor& hidden);

/// An autoencoder of hidden states [N,D], float32. An Error naming the step where the loss is not finite.
Autoencoder train_autoencoder(const at::Tensor& hidden, const AutoencoderTraining& options,
                              const std::function<void(int64_t step, double loss)>& progress = {});

/// Writes W_enc, b_enc, W_dec, b_dec, and a threshold of 0 for each feature, with which a jump is no jump: read_autoencoder reads
/// the file as either kind.
void write_autoencoder(const std::filesystem::path& path, const Autoencoder& autoencoder);

}  // namespace kullback
