#pragma once

#include <filesystem>

#include <ATen/core/Tensor.h>

namespace kullback {

/// A sparse autoencoder of hidden states [D] into M features.
struct Autoencoder {
  at::Tensor encoder, bias;          ///< [D,M], [M]
  at::Tensor threshold;              ///< [M] of the jump; undefined: plain ReLU
  at::Tensor decoder, decoder_bias;  ///< [M,D], [D]; for training alone

  /// relu(h encoder + bias), and 0 where that does not exceed the threshold. [...,D] -> [...,M]
  at::Tensor features(const at::Tensor& hidden) const;
};

/// Reads `W_enc`, `b_enc` and, for JumpReLU, `threshold` from a safetensors file, once however often it is asked for. Error
/// for what is not there or of another shape.
const Autoencoder& read_autoencoder(const std::filesystem::path& path, bool jump);

/// The loss that an autoencoder is trained by: mean over counted tokens of |h - decoded|^2 + l1 |features|_1.
struct AutoencoderLoss {
  at::Tensor loss, reconstruction, l1, l0;  ///< scalars; l0: features that are active
};
/// hidden: [B,T,D], mask: [B,T]
AutoencoderLoss autoencoder_loss(const Autoencoder& autoencoder, const at::Tensor& hidden, const at::Tensor& mask,
                                 double l1);

}  // namespace kullback
