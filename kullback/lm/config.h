#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kullback/base/json.h"

namespace kullback {

/// Rotary positions (Su et al. 2021, arXiv 2104.09864) with pairs (j, j + size/2), and how their frequencies are
/// stretched to contexts longer than those of the first training.
struct Rope {
  enum class Scaling {
    none,
    linear,    ///< every frequency divided by `factor` (Chen et al. 2023, arXiv 2306.15595)
    dynamic,   ///< theta raised as the context outgrows `original_positions` (NTK-aware, bloc97 2023)
    llama3,    ///< only the low frequencies, with a smooth passage between (Llama 3.1)
    yarn,      ///< by parts, and scores sharpened (Peng et al. 2023, arXiv 2309.00071)
    longrope,  ///< a divisor a pair, other ones beyond `original_positions` (Ding et al. 2024, arXiv 2402.13753)
  };
  double theta = 10000;
  int64_t size = 0;  ///< dimensions of each head that are turned, the first ones; 0: all
  Scaling scaling = Scaling::none;
  double factor = 1;
  int64_t original_positions = 0;                ///< all but linear: the context of the first training
  double low_frequency = 1, high_frequency = 4;  ///< llama3: the passage, in turns over the original context
  double beta_fast = 32, beta_slow = 1;          ///< yarn: the passage, in turns over the original context
  bool truncate = true;                          ///< yarn: the passage begins and ends at whole dimensions
  std::vector<double> short_factors = {}, long_factors = {};  ///< longrope: a divisor a pair, [size / 2]
  double magnitude = 0;  ///< yarn, longrope: cos and sin are multiplied by it; 0: the paper's
};

/// How a row is normed.
enum class NormKind {
  rms,               ///< x / root mean square * w
  zero_centred_rms,  ///< x / root mean square * (1 + w), as Gemma stores its weights
  layer,             ///< (x - mean) / deviation * w + b
};

enum class Activation { silu, gelu, gelu_tanh, relu };

/// What is normed of queries and keys before they are turned.
enum class QueryKeyNorm {
  none,
  each_head,  ///< every head by itself, one weight for all of them
  whole,      ///< all heads together
};

/// What a decoder-only transformer looks like, in the sizes and switches that its one implementation reads. A family of
/// models is a set of values here, not a class.
struct Config {
  std::string model_type = "llama";  ///< Hugging Face's name of the family
  int64_t vocabulary_size = 0;       ///< V: rows of the embedding, padding included
  int64_t hidden_size = 0;           ///< D
  int64_t layers = 0;
  int64_t heads = 0;             ///< H: query heads
  int64_t key_value_heads = 0;   ///< K: divides H (grouped-query attention)
  int64_t head_size = 0;         ///< d: width of one head; H d need not equal D
  int64_t mlp_size = 0;          ///< F
  int64_t max_positions = 2048;  ///< the longest context that the model was trained for
  NormKind norm = NormKind::rms;
  double norm_epsilon = 1e-6;
  bool norm_before = true;         ///< of the input of attention and MLP
  bool norm_after = false;         ///< of their output, before it is added
  bool parallel_residual = false;  ///< attention and MLP both read what came into the layer (GPT-NeoX)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Activation activation = Activation::silu;
  bool gated = true;               ///< MLP: down(act(gate x) * up x), else down(act(up x))
  bool scaled_embedding = false;   ///< embeddings times sqrt(D) (Gemma)
  bool learned_positions = false;  ///< a row a position is added to the embedding, and nothing is turned (GPT-2)
  Rope rope = {};
  std::optional<Rope> local_rope = {};  ///< of the layers that slide, where it is another one (Gemma 3)
  std::vector<bool> unrotated = {};     ///< [layers]: layers without positions; empty: none (SmolLM3)
  int64_t window = 0;                   ///< tokens that a sliding layer's token sees, itself included
  std::vector<bool> sliding = {};       ///< [layers]: layers with that window; empty: none
  double query_scale = 0;               ///< scores are divided by its root; 0: head_size
  double attention_softcap = 0;         ///< c: scores become c tanh(s / c); 0: none
  double head_softcap = 0;              ///< the same of the logits
  bool attention_bias = false;          ///< on the query, key, value and output projections
  bool query_key_value_bias = false;    ///< on those three alone (Qwen2)
  bool mlp_bias = false;
  bool tied_head = false;                ///< the head is the embedding
  int64_t bos = -1, eos = -1, pad = -1;  ///< token ids written to config.json; -1: none

  bool slides(int64_t layer) const { return !sliding.empty() && sliding[static_cast<size_t>(layer)]; }
  bool rotates(int64_t layer) const {
    return !learned_positions && (unrotated.empty() || !unrotated[static_cast<size_t>(layer)]);
  }
  /// The longest sequence that the model can be given: what it was trained for, and no limit where the rotary scaling
  /// follows the context.
  int64_t longest_sequence() const {
    return rope.scaling == Rope::Scaling::dynamic ? std::numeric_limits<int64_t>::max() : max_positions;
  }
};

/// Throws an Error that names `source` and the value at fault when sizes are not positive, do not fit one another or
/// are beyond what any model has (which a damaged file may claim).
void validate(const Config& config, const std::string& source);

/// Reads Hugging Face's config.json of a family named in `model_families`, in the spelling of any version. Throws an
/// Error naming `source` for an architecture or setting that is not supported.
Config config_from_json(const Json& json, const std::string& source);

/// Writes what transformers reads back as the same model.
Json config_to_json(const Config& config);

/// Hugging Face's names (`model_type`) of the families that can be read and written.
const std::vector<std::string>& model_families();

/// The inverse frequency of each turned pair, scaling applied. `size` dimensions of a head are turned; the longest
/// sequence has `context` tokens, which dynamic and longrope look at. [size / 2]
std::vector<double> rope_frequencies(const Rope& rope, int64_t size, int64_t context = 0);

/// What cos and sin are multiplied by (1 unless yarn or longrope).
double rope_magnitude(const Rope& rope);

}  // namespace kullback
