#include "kullback/align/autoencoder_training.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/save.h"
#include "kullback/train/optimizer.h"

namespace kullback {

using at::Tensor;

namespace {

/// A decoder of unit rows that point anywhere, its transpose as the encoder, and the mean state as what no feature decodes to.
Autoencoder beginning(const Tensor& hidden, const AutoencoderTraining& o) {
  RandomStream stream(static_cast<uint64_t>(o.seed), "autoencoder");
  Tensor decoder = at::empty({o.features, hidden.size(1)}, at::kFloat);
  float* number = decoder.mutable_data_ptr<float>();
  for (int64_t i = 0; i < decoder.numel(); ++i) number[i] = static_cast<float>(stream.normal());
  decoder = decoder / decoder.norm(2, 1, true);
  const Tensor mean = hidden.mean(0);
  return {.encoder = decoder.t().contiguous(),
          .bias = -at::mv(decoder, mean),
          .threshold = {},
          .decoder = decoder,
          .decoder_bias = mean};
}

std::vector<NamedTensor> tensors_of(const Autoencoder& a) {
  return {{"W_enc", a.encoder}, {"b_enc", a.bias}, {"W_dec", a.decoder}, {"b_dec", a.decoder_bias}};
}

}  // namespace

AutoencoderFigures autoencoder_figures(const Autoencoder& a, const Tensor& hidden) {
  const at::NoGradGuard no_grad;
  const Tensor features = a.features(hidden), decoded = at::matmul(features, a.decoder) + a.decoder_bias;
  const Tensor spread = (hidden - hidden.mean(0)).square().sum(-1).mean();
  return {.unexplained = ((hidden - decoded).square().sum(-1).mean() / spread.clamp_min(1e-30)).item<double>(),
          .active = (features > 0).sum(-1).to(at::kDouble).mean().item<double>(),
          .dead = ((features > 0).sum(0) == 0).to(at::kDouble).mean().item<double>()};
}

Autoencoder train_autoencoder(const Tensor& states, const AutoencoderTraining& o,
                              const std::function<void(int64_t, double)>& progress) {
  const Tensor scale = (states - states.mean(0)).square().sum(-1).mean().sqrt().clamp_min(1e-30);
  const Tensor hidden = states / scale;
  Autoencoder a = beginning(hidden, o);
  for (NamedTensor& one : tensors_of(a)) one.tensor.requires_grad_(true);
  Optimizer adam(tensors_of(a), {.weight_decay = 0});
  RandomStream order(static_cast<uint64_t>(o.seed), "autoencoder/tokens");
  for (int64_t step = 0; step < o.steps; ++step) {
    std::vector<int64_t> rows(static_cast<size_t>(o.batch_size));
    for (int64_t& row : rows) row = static_cast<int64_t>(order.below(static_cast<uint64_t>(hidden.size(0))));
    const Tensor batch = hidden.index_select(0, at::tensor(rows, at::kLong)).unsqueeze(0);
    adam.clear_gradients();
    const AutoencoderLoss loss =
        autoencoder_loss(a, batch, at::ones({1, o.batch_size}, at::TensorOptions(at::kBool)), o.l1);
    const double value = loss.loss.item<double>();
    if (!std::isfinite(value)) fail("the autoencoder's loss is {} at step {}", value, step + 1);
    loss.loss.backward();
    // The last fifth of the steps shrinks to nothing, so that the end does not depend on the last tokens.
    adam.step(o.learning_rate * std::min(1.0, 5 * (1 - static_cast<double>(step) / static_cast<double>(o.steps))));
    if (progress) progress(step + 1, value);
  }
  const at::NoGradGuard no_grad;  // and back to the states as they are
  return {.encoder = a.encoder / scale,
          .bias = a.bias.detach(),
          .threshold = {},
          .decoder = a.decoder * scale,
          .decoder_bias = a.decoder_bias * scale};
}

void write_autoencoder(const std::filesystem::path& path, const Autoencoder& a) {
  std::vector<NamedTensor> all = tensors_of(a);
  all.push_back({"threshold", a.threshold.defined() ? a.threshold : at::zeros_like(a.bias)});
  std::vector<TensorBytes> bytes;
  for (NamedTensor& one : all) {
    one.tensor = one.tensor.detach().contiguous();
    const auto* data = static_cast<const std::byte*>(one.tensor.const_data_ptr());
    bytes.push_back({one.name, stored_dtype(one.tensor), one.tensor.sizes().vec(), {data, one.tensor.nbytes()}});
  }
  write_safetensors(path, bytes);
}

}  // namespace kullback
