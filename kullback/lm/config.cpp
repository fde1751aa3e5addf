#include "kullback/lm/config.h"

#include <cmath>
#include <utility>

#include "kullback/base/error.h"

namespace kullback {
namespace {

constexpr int64_t largest_size = int64_t{1} << 24;  // beyond any model's width, vocabulary or depth

void check_size(int64_t value, const char* name, const std::string& source) {
  if (value <= 0) fail("{}: {} is {}, which must be positive", source, name, value);
  if (value > largest_size) fail("{}: {} is {}, beyond what any model has", source, name, value);
}

void check_factors(const std::vector<double>& factors, const char* name, int64_t pairs, const std::string& source) {
  if (static_cast<int64_t>(factors.size()) != pairs)
    fail("{}: the {} of rope_scaling has {} numbers for {} pairs", source, name, factors.size(), pairs);
  for (const double factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor))
      fail("{}: the {} of rope_scaling holds {}, which must be positive", source, name, factor);
  }
}

void validate(const Rope& rope, int64_t head_size, const std::string& source) {
  if (!(rope.theta > 0) || !std::isfinite(rope.theta))
    fail("{}: rope_theta is {}, which must be positive", source, rope.theta);
  const int64_t size = rope.size == 0 ? head_size : rope.size;
  if (size < 2 || size > head_size || size % 2 != 0) {
    fail("{}: {} of a head's {} dimensions are to be rotated; that must be an even number of at least 2", source, size,
         head_size);
  }
  if (rope.scaling == Rope::Scaling::none) return;
  if (!(rope.factor > 0) || !std::isfinite(rope.factor))
    fail("{}: the factor of rope_scaling is {}, which must be positive", source, rope.factor);
  if (rope.scaling == Rope::Scaling::linear) return;
  if (rope.original_positions <= 0) fail("{}: rope_scaling has no positive original_max_position_embeddings", source);
  if (rope.scaling == Rope::Scaling::dynamic && size < 4)
    fail("{}: dynamic rope_scaling needs at least 4 rotated dimensions a head, not {}", source, size);
  if (rope.scaling == Rope::Scaling::llama3 && !(rope.low_frequency < rope.high_frequency)) {
    fail("{}: the low_freq_factor of rope_scaling must be below its high_freq_factor", source);
  }
  if (rope.scaling == Rope::Scaling::yarn && !(rope.beta_slow > 0 && rope.beta_fast > 0)) {
    fail("{}: beta_fast and beta_slow of rope_scaling must be positive", source);
  }
  if (rope.scaling == Rope::Scaling::longrope) {
    check_factors(rope.short_factors, "short_factor", size / 2, source);
    check_factors(rope.long_factors, "long_factor", size / 2, source);
    if (rope.original_positions < 2 && rope.magnitude <= 0)
      fail("{}: the original_max_position_embeddings of longrope must be at least 2", source);
  }
}

void check_by_layer(const std::vector<bool>& switches, const char* name, const Config& config,
                    const std::string& source) {
  if (!switches.empty() && static_cast<int64_t>(switches.size()) != config.layers)
    fail("{}: {} has {} entries for {} layers", source, name, switches.size(), config.layers);
}

void check_softcap(double cap, const char* name, const std::string& source) {
  if (!(cap >= 0) || !std::isfinite(cap)) fail("{}: {} is {}, which must be positive", source, name, cap);
}

}  // namespace

void validate(const Config& config, const std::string& source) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", config.vocabulary_size},
                                                   {"hidden_size", config.hidden_size},
                                                   {"num_hidden_layers", config.layers},
                                                   {"num_attention_heads", config.heads},
                                                   {"num_key_value_heads", config.key_value_heads},
                                                   {"head_dim", config.head_size},
                                                   {"intermediate_size", config.mlp_size}};
  for (const auto& [name, value] : sizes) check_size(value, name, source);
  if (config.heads * config.head_size > largest_size) {
    fail("{}: {} heads of {} are beyond what any model has", source, config.heads, config.head_size);
  }
  if (config.max_positions <= 0)
    fail("{}: max_position_embeddings is {}, which must be positive", source, config.max_positions);
  if (config.learned_positions) check_size(config.max_positions, "max_position_embeddings", source);
  if (config.layers > 4096) fail("{}: num_hidden_layers is {}, beyond what any model has", source, config.layers);
  if (config.heads % config.key_value_heads != 0) {
    fail("{}: {} attention heads cannot share {} key and value heads evenly", source, config.heads,
         config.key_value_heads);
  }
  if (config.head_size % 2 != 0 && !config.learned_positions && config.rope.size == 0)
    fail("{}: head_dim is {}, which rotary positions need to be even", source, config.head_size);
  if (!(config.norm_epsilon >= 0) || !std::isfinite(config.norm_epsilon)) {
    fail("{}: {} is {}, which must not be negative", source,
         config.norm == NormKind::layer ? "layer_norm_eps" : "rms_norm_eps", config.norm_epsilon);
  }
  if (!config.learned_positions) validate(config.rope, config.head_size, source);
  if (config.local_rope) validate(*config.local_rope, config.head_size, source);
  check_by_layer(config.sliding, "layer_types", config, source);
  check_by_layer(config.unrotated, "no_rope_layers", config, source);
  if (!config.sliding.empty() && config.window <= 0)
    fail("{}: sliding_window is {}, which must be positive", source, config.window);
  if (!(config.query_scale >= 0) || !std::isfinite(config.query_scale))
    fail("{}: query_pre_attn_scalar is {}, which must be positive", source, config.query_scale);
  check_softcap(config.attention_softcap, "attn_logit_softcapping", source);
  check_softcap(config.head_softcap, "final_logit_softcapping", source);
}

}  // namespace kullback
