#include "kullback/lm/config.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "kullback/base/error.h"

namespace kullback {
namespace {

constexpr int64_t largest_size = int64_t{1} << 24;  // beyond any model's width, vocabulary or depth

void check_size(int64_t value, const char* name, const std::string& source) {
  if (value <= 0) fail("{}: {} is {}, which must be positive", source, name, value);
  if (value > largest_size) fail("{}: {} is {}, beyond what any model has", source, name, value);
}

void validate(const Rope& rope, const std::string& source) {
  if (!(rope.theta > 0) || !std::isfinite(rope.theta))
    fail("{}: rope_theta is {}, which must be positive", source, rope.theta);
  if (rope.scaling == Rope::Scaling::none) return;
  if (!(rope.factor > 0) || !std::isfinite(rope.factor))
    fail("{}: the factor of rope_scaling is {}, which must be positive", source, rope.factor);
  if (rope.scaling == Rope::Scaling::linear) return;
  if (rope.original_positions <= 0) fail("{}: rope_scaling has no positive original_max_position_embeddings", source);
  if (rope.scaling == Rope::Scaling::llama3 && !(rope.low_frequency < rope.high_frequency)) {
    fail("{}: the low_freq_factor of rope_scaling must be below its high_freq_factor", source);
  }
  if (rope.scaling == Rope::Scaling::yarn && !(rope.beta_slow > 0 && rope.beta_fast > 0)) {
    fail("{}: beta_fast and beta_slow of rope_scaling must be positive", source);
  }
}

// Typed reading of JSON with errors that name the file and the key.
struct Reader {
  const Json& json;
  const std::string& source;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }

  template <class T>
  T value(const char* key) const {
    if (!has(key)) fail("{}: no key '{}'", source, key);
    const Json& found = json[key];
    const bool fits = std::is_same_v<T, std::string> ? found.is_string()
                      : std::is_same_v<T, bool>      ? found.is_boolean()
                      : std::is_integral_v<T>        ? found.is_number_integer()
                                                     : found.is_number();
    if (!fits) fail("{}: the value of '{}' is {}, which is not of the expected type", source, key, found.dump());
    return found.get<T>();
  }

  template <class T>
  T value(const char* key, T fallback) const {
    return has(key) ? value<T>(key) : fallback;
  }
};

constexpr std::pair<Rope::Scaling, const char*> scaling_names[] = {{Rope::Scaling::none, "default"},
                                                                   {Rope::Scaling::linear, "linear"},
                                                                   {Rope::Scaling::llama3, "llama3"},
                                                                   {Rope::Scaling::yarn, "yarn"}};

Rope::Scaling scaling_from_name(const std::string& name, const std::string& source) {
  for (const auto& [scaling, known] : scaling_names) {
    if (name == known) return scaling;
  }
  fail("{}: rope scaling '{}' is not supported; default, linear, llama3 and yarn are", source, name);
}

const char* scaling_name(Rope::Scaling scaling) { return scaling_names[static_cast<size_t>(scaling)].second; }

// Newer files give the ratio of two magnitudes, each 0.1 m ln(factor) + 1.
double yarn_magnitude(const Reader& scaling, double factor) {
  if (scaling.has("attention_factor")) return scaling.value<double>("attention_factor");
  const double over = scaling.value<double>("mscale", 0), under = scaling.value<double>("mscale_all_dim", 0);
  const auto magnitude = [factor](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
  return over != 0 && under != 0 ? magnitude(over) / magnitude(under) : magnitude(1);
}

// Old files have `rope_theta` at the top and `rope_scaling`; those of transformers 5 `rope_parameters` with both. A
// `rope_scaling` that is not empty wins.
Rope rope_from_json(const Reader& top, int64_t max_positions) {
  Rope rope;
  rope.theta = top.value<double>("rope_theta", rope.theta);
  const char* key = top.has("rope_scaling") && !top.json["rope_scaling"].empty() ? "rope_scaling" : "rope_parameters";
  if (!top.has(key)) return rope;
  if (!top.json[key].is_object()) fail("{}: the value of '{}' is not an object", top.source, key);
  const Reader scaling{top.json[key], top.source};
  rope.theta = scaling.value<double>("rope_theta", rope.theta);
  rope.scaling = scaling_from_name(
      scaling.value<std::string>("rope_type", scaling.value<std::string>("type", "default")), top.source);
  if (rope.scaling == Rope::Scaling::none) return rope;
  rope.factor = scaling.value<double>("factor");
  rope.original_positions = top.value<int64_t>(
      "original_max_position_embeddings", scaling.value<int64_t>("original_max_position_embeddings", max_positions));
  rope.low_frequency = scaling.value<double>("low_freq_factor", rope.low_frequency);
  rope.high_frequency = scaling.value<double>("high_freq_factor", rope.high_frequency);
  rope.beta_fast = scaling.value<double>("beta_fast", rope.beta_fast);
  rope.beta_slow = scaling.value<double>("beta_slow", rope.beta_slow);
  rope.truncate = scaling.value<bool>("truncate", rope.truncate);
  if (rope.scaling == Rope::Scaling::yarn) rope.magnitude = yarn_magnitude(scaling, rope.factor);
  return rope;
}

// Both spellings, so that every version of transformers reads the same positions.
void rope_to_json(const Rope& rope, Json& json) {
  Json scaling = {{"rope_type", scaling_name(rope.scaling)}, {"rope_theta", rope.theta}};
  if (rope.scaling != Rope::Scaling::none) scaling["factor"] = rope.factor;
  if (rope.scaling == Rope::Scaling::llama3 || rope.scaling == Rope::Scaling::yarn) {
    scaling["original_max_position_embeddings"] = rope.original_positions;
  }
  if (rope.scaling == Rope::Scaling::llama3) {
    scaling["low_freq_factor"] = rope.low_frequency;
    scaling["high_freq_factor"] = rope.high_frequency;
  }
  if (rope.scaling == Rope::Scaling::yarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    scaling["truncate"] = rope.truncate;
    scaling["attention_factor"] = rope_magnitude(rope);
  }
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = rope.scaling == Rope::Scaling::none ? Json() : scaling;
  json["rope_parameters"] = scaling;
}

// A number or a list of them, of which the first is the model's.
int64_t token_id(const Reader& reader, const char* key) {
  if (!reader.has(key)) return -1;
  const Json& value = reader.json[key];
  const Json& first = value.is_array() && !value.empty() ? value[0] : value;
  if (!first.is_number_integer())
    fail("{}: the value of '{}' is {}, which is not a token id", reader.source, key, value.dump());
  return first.get<int64_t>();
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
  if (config.max_positions <= 0)
    fail("{}: max_position_embeddings is {}, which must be positive", source, config.max_positions);
  if (config.layers > 4096) fail("{}: num_hidden_layers is {}, beyond what any model has", source, config.layers);
  if (config.heads % config.key_value_heads != 0) {
    fail("{}: {} attention heads cannot share {} key and value heads evenly", source, config.heads,
         config.key_value_heads);
  }
  if (config.head_size % 2 != 0)
    fail("{}: head_dim is {}, which rotary positions need to be even", source, config.head_size);
  if (!(config.norm_epsilon >= 0) || !std::isfinite(config.norm_epsilon)) {
    fail("{}: rms_norm_eps is {}, which must not be negative", source, config.norm_epsilon);
  }
  validate(config.rope, source);
}

Config config_from_json(const Json& json, const std::string& source) {
  if (!json.is_object()) fail("{}: not a JSON object", source);
  const Reader reader{json, source};
  Config config;
  config.model_type = reader.value<std::string>("model_type");
  if (config.model_type != "llama") fail("{}: architecture '{}' is not supported; llama is", source, config.model_type);
  const std::string activation = reader.value<std::string>("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    fail("{}: hidden_act '{}' is not supported; silu is", source, activation);
  config.vocabulary_size = reader.value<int64_t>("vocab_size");
  config.hidden_size = reader.value<int64_t>("hidden_size");
  config.layers = reader.value<int64_t>("num_hidden_layers");
  config.heads = reader.value<int64_t>("num_attention_heads");
  check_size(config.heads, "num_attention_heads", source);
  config.key_value_heads = reader.value<int64_t>("num_key_value_heads", config.heads);
  config.head_size = reader.value<int64_t>("head_dim", config.hidden_size / config.heads);
  config.mlp_size = reader.value<int64_t>("intermediate_size");
  config.max_positions = reader.value<int64_t>("max_position_embeddings", config.max_positions);
  config.norm_epsilon = reader.value<double>("rms_norm_eps", config.norm_epsilon);
  config.rope = rope_from_json(reader, config.max_positions);
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.mlp_bias = reader.value<bool>("mlp_bias", false);
  config.tied_head = reader.value<bool>("tie_word_embeddings", false);
  config.bos = token_id(reader, "bos_token_id");
  config.eos = token_id(reader, "eos_token_id");
  config.pad = token_id(reader, "pad_token_id");
  validate(config, source);
  return config;
}

Json config_to_json(const Config& config) {
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", config.model_type},
               {"vocab_size", config.vocabulary_size},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.mlp_size},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.key_value_heads},
               {"head_dim", config.head_size},
               {"hidden_act", "silu"},
               {"max_position_embeddings", config.max_positions},
               {"rms_norm_eps", config.norm_epsilon},
               {"attention_bias", config.attention_bias},
               {"mlp_bias", config.mlp_bias},
               {"attention_dropout", 0.0},
               {"tie_word_embeddings", config.tied_head},
               {"bos_token_id", id(config.bos)},
               {"eos_token_id", id(config.eos)},
               {"pad_token_id", id(config.pad)},
               {"use_cache", true}};
  rope_to_json(config.rope, json);
  return json;
}

}  // namespace kullback
