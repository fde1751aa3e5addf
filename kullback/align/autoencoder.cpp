#include "kullback/align/autoencoder.h"

#include <map>
#include <mutex>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/read.h"
#include "kullback/train/preference.h"

namespace kullback {

using at::Tensor;

Tensor Autoencoder::features(const Tensor& hidden) const {
  const Tensor pre = at::matmul(hidden, encoder.to(hidden.scalar_type())) + bias.to(hidden.scalar_type());
  const Tensor active = at::relu(pre);
  return threshold.defined() ? active * (pre > threshold.to(hidden.scalar_type())) : active;
}

const Autoencoder& read_autoencoder(const std::filesystem::path& path, bool jump) {
  static std::mutex mutex;
  static std::map<std::pair<std::filesystem::path, bool>, Autoencoder> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({path, jump});
  if (found != known.end()) return found->second;
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto read = [&](const char* name, size_t dimensions) {
    const TensorBytes& bytes = file.tensor(name);
    if (bytes.shape.size() != dimensions) fail("{}: tensor {} has not {} dimensions", path.string(), name, dimensions);
    Tensor into = at::empty(bytes.shape, at::kFloat);
    read_tensor(path.string(), bytes, into);
    return into;
  };
  Autoencoder a{
      .encoder = read("W_enc", 2), .bias = read("b_enc", 1), .threshold = {}, .decoder = {}, .decoder_bias = {}};
  if (jump) a.threshold = read("threshold", 1);
  for (const Tensor& one : {a.bias, a.threshold}) {
    if (one.defined() && one.size(0) != a.encoder.size(1))
      fail("{}: W_enc makes {} features, b_enc or threshold knows {}", path.string(), a.encoder.size(1), one.size(0));
  }
  return known.emplace(std::pair(path, jump), std::move(a)).first->second;
}

AutoencoderLoss autoencoder_loss(const Autoencoder& a, const Tensor& hidden, const Tensor& mask, double l1) {
  const Tensor features = a.features(hidden), decoded = at::matmul(features, a.decoder) + a.decoder_bias;
  const Tensor tokens = mask.sum().clamp_min(1);
  const auto mean = [&](const Tensor& values) { return masked(values, mask).sum() / tokens; };
  AutoencoderLoss loss{.loss = {},
                       .reconstruction = mean((hidden - decoded).square().sum(-1)),
                       .l1 = mean(features.abs().sum(-1)),
                       .l0 = mean((features > 0).sum(-1).to(hidden.scalar_type()))};
  loss.loss = loss.reconstruction + l1 * loss.l1;
  return loss;
}

}  // namespace kullback
