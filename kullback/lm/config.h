#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kullback/base/json.h"

namespace kullback {

/// Rotary positions (Su et al. 2021, arXiv 2104.09864) with pairs (j, j + size/2), and how their frequencies are
/// stretched to contexts longer than those of the first training.
struct Rope {
  enum class Scaling {
    none,
    linear,  ///< every frequency divided by `factor` (Chen et al. 2023, arXiv 2306.15595)
    llama3,  ///< only the low frequencies, with a smooth passage between (Llama 3.1)
    yarn,    ///< by parts, and scores sharpened (Peng et al. 2023, arXiv 2309.00071)
  };
  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;
  int64_t original_positions = 0;                ///< llama3, yarn: the context of the first training
  double low_frequency = 1, high_frequency = 4;  ///< llama3: the passage, in turns over the original context
  double beta_fast = 32, beta_slow = 1;          ///< yarn: the passage, in turns over the original context
  bool truncate = true;                          ///< yarn: the passage begins and ends at whole dimensions
  double magnitude = 0;                          ///< yarn: cos and sin are multiplied by it; 0: 0.1 ln(factor) + 1
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
  double norm_epsilon = 1e-6;
  Rope rope;
  bool attention_bias = false;  ///< on the query, key, value and output projections
  bool mlp_bias = false;
  bool tied_head = false;                ///< the head is the embedding
  int64_t bos = -1, eos = -1, pad = -1;  ///< token ids written to config.json; -1: none
};

/// Throws an Error that names `source` and the value at fault when sizes are not positive, do not fit one another or
/// are beyond what any model has (which a damaged file may claim).
void validate(const Config& config, const std::string& source);

/// Reads Hugging Face's config.json, in the spelling of any version (`rope_theta` and `rope_scaling`, or
/// `rope_parameters`). Throws an Error naming `source` for an architecture or setting that is not supported.
Config config_from_json(const Json& json, const std::string& source);

/// Writes what transformers reads back as the same model.
Json config_to_json(const Config& config);

/// The inverse frequency of each rotated pair, scaling applied. [head_size / 2]
std::vector<double> rope_frequencies(const Rope& rope, int64_t head_size);

/// What cos and sin are multiplied by (1 unless yarn).
double rope_magnitude(const Rope& rope);

}  // namespace kullback
