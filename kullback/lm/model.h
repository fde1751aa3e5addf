#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kullback/lm/transformer.h"
#include "kullback/text/chat_template.h"
#include "kullback/text/tokenizer.h"

namespace kullback {

/// How the model's makers suggest to sample from it (generation_config.json).
struct GenerationDefaults {
  std::vector<int32_t> stop_ids;  ///< tokens that end an answer
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k;
};

/// A language model: configuration and weights, tokenizer and chat template.
struct Model {
  std::string name;  ///< as the user named it
  Transformer transformer;
  std::optional<Tokenizer> tokenizer;  ///< absent from a bare folder of weights
  std::string jinja;                   ///< the model's own chat template as it stands; may be empty
  std::optional<ChatTemplate> chat;    ///< absent when the model carries none, or one that is not recognised
  GenerationDefaults generation;

  const Config& config() const { return transformer.config; }
  /// The tokenizer, or the chat template. Throws an Error naming the model when it carries none, or a template of a
  /// kind that is not supported.
  const Tokenizer& text() const;
  const ChatTemplate& chat_template() const;
};

/// The file or folder that a name or path stands for: `smollm2-135m-instruct` is the file that `kullback pull` keeps in
/// the cache folder; anything else is a path. Throws an Error that says what to do when there is nothing.
std::filesystem::path resolve_model(const std::string& name_or_path);

/// Sets `jinja`, and `chat` when it is recognised.
void set_chat_template(Model& model, const std::string& jinja);

/// Reads a GGUF file or a Hugging Face folder (safetensors). Weights become `dtype` (float32; float64 for tests), one
/// tensor at a time, so that little more than the weights themselves is held. Throws an Error naming the file, and the
/// tensor or key at fault: missing, of a wrong shape, holding NaN or infinity, of an unknown architecture. `kept`: how
/// matrices are kept for generation (keep_weights); those of a float32 model are never all held in full.
Model load_model(const std::string& name_or_path, at::ScalarType dtype = at::kFloat,
                 WeightType kept = WeightType::float32);

}  // namespace kullback
