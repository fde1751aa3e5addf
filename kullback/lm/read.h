#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "kullback/io/safetensors.h"
#include "kullback/lm/check_shape.h"
#include "kullback/lm/layout.h"
#include "kullback/lm/model.h"

namespace kullback {

/// A model from a GGUF file of a family in model_families(). Errors as for load_model.
Model read_gguf(const std::filesystem::path& file, at::ScalarType dtype, bool with_weights = true,
                WeightType kept = WeightType::float32);

/// A model from a Hugging Face folder: config.json, model.safetensors or its shards with their index, and what else is
/// there of generation_config.json, tokenizer.json, tokenizer_config.json and chat_template.jinja.
Model read_folder(const std::filesystem::path& folder, at::ScalarType dtype, bool with_weights = true,
                  WeightType kept = WeightType::float32);

/// A model whose head classifies: Hugging Face's ...ForSequenceClassification.
struct ClassificationModel {
  Model model;      ///< without a head of its own: what `head_rows` would say means nothing
  at::Tensor head;  ///< [labels,D]: of the last token's hidden state
  at::Tensor bias;  ///< [labels], or undefined
};
/// Error naming the folder where its files hold no score.weight.
ClassificationModel read_classification_folder(const std::filesystem::path& folder, at::ScalarType dtype = at::kFloat);

/// The tokenizer of a Hugging Face folder (tokenizer.json, with the names of special tokens from
/// tokenizer_config.json), or nothing when there is none. Byte-level BPE. Throws an Error naming the file and the part
/// that is not understood.
std::optional<Tokenizer> read_tokenizer(const std::filesystem::path& folder);

/// Where weights come from, by the names of a layout's tensors.
struct WeightSource {
  std::string name;  ///< the file or folder, as in messages
  std::function<std::string(const std::string& tensor)> stored_name = [](const std::string& tensor) { return tensor; };
  std::function<std::span<const int64_t>(const std::string& tensor)> shape;  ///< Error when there is no such tensor
  std::function<void(const std::string& tensor, at::Tensor& into)> read;
};

/// The transformer that `config` describes, filled from `source`, whose tensors lie as `layout` says; each is checked to
/// be finite. Every shape is checked before anything is allocated, so that a file cannot ask for more memory than its
/// own tensors account for. Each matrix is kept as `kept` says as soon as it is read.
Transformer read_weights(const Config& config, const Layout& layout, at::ScalarType dtype, const WeightSource& source,
                         WeightType kept = WeightType::float32);

/// The model's tensors without numbers, on the meta device.
Transformer shapes_alone(const Config& config);

/// The names of all tensors that a file of such a model holds.
std::set<std::string> stored_names(const Config& config, const Layout& layout);

/// Throws an Error naming the tensor when a number in it is NaN or infinite. Holds no copy of it.
void check_finite(const std::string& source, const std::string& name, const at::Tensor& tensor);

/// Converts a tensor of a safetensors file to the type of `into`, which has the same number of elements.
void read_tensor(const std::string& source, const TensorBytes& tensor, at::Tensor& into);

/// Lets the kernel drop the pages of a mapped file that have been read: they count as the process's memory until then.
void release_pages(std::span<const std::byte> mapped);

}  // namespace kullback
