// config.json of every family, in the spellings of transformers 4 and 5.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kullback/base/suggest.h"
#include "kullback/lm/config.h"
#include "kullback/lm/config_reader.h"
#include "kullback/lm/rope_names.h"

namespace kullback {
namespace {

// A number that may be written out as null, which is then the second fallback.
int64_t key_value_heads(const ConfigReader& reader, const Config& config, int64_t absent, bool null_allowed = true) {
  const char* key = "num_key_value_heads";
  if (!reader.json.contains(key)) return absent;
  if (reader.has(key)) return reader.value<int64_t>(key);
  if (!null_allowed) fail("{}: num_key_value_heads is null, which {} does not know", reader.source, config.model_type);
  return config.heads;
}

Rope::Scaling scaling_from_name(std::string name, const std::string& source) {
  if (name == "su") name = "longrope";  // as the first Phi-3 files say
  std::vector<std::string> names;
  for (const auto& [scaling, known] : rope_scaling_names) {
    if (name == known) return scaling;
    names.emplace_back(known);
  }
  fail("{}: rope scaling '{}' is not supported{}; {} are", source, name, suggestion(name, names), listing(names));
}

// Newer files give the ratio of two magnitudes, each 0.1 m ln(factor) + 1.
double yarn_magnitude(const ConfigReader& scaling, double factor) {
  if (scaling.has("attention_factor")) return scaling.value<double>("attention_factor");
  const double over = scaling.value<double>("mscale", 0), under = scaling.value<double>("mscale_all_dim", 0);
  const auto magnitude = [factor](double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; };
  return over != 0 && under != 0 ? magnitude(over) / magnitude(under) : magnitude(1);
}

std::vector<double> numbers(const ConfigReader& reader, const char* key) {
  if (!reader.has(key)) fail("{}: no key '{}' in rope_scaling", reader.source, key);
  const Json& list = reader.json[key];
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const Json& one) { return one.is_number(); }))
    fail("{}: the value of '{}' is not a list of numbers", reader.source, key);
  return list.get<std::vector<double>>();
}

// What a family says of its rotary positions when config.json does not.
struct RopeDefaults {
  double theta = 10000, part = 1;
  const char* theta_key = "rope_theta";
  const char* part_key = "partial_rotary_factor";
};

void read_scaling(const ConfigReader& top, const ConfigReader& scaling, int64_t max_positions, Rope& rope) {
  const int64_t original = scaling.value<int64_t>("original_max_position_embeddings", max_positions);
  rope.original_positions = rope.scaling == Rope::Scaling::dynamic
                                ? max_positions
                                : top.value<int64_t>("original_max_position_embeddings", original);
  if (rope.original_positions <= 0)
    fail("{}: original_max_position_embeddings is {}, which must be positive", top.source, rope.original_positions);
  const bool may_lack_factor = rope.scaling == Rope::Scaling::longrope || rope.scaling == Rope::Scaling::yarn;
  rope.factor = may_lack_factor && !scaling.has("factor")
                    ? static_cast<double>(max_positions) / static_cast<double>(rope.original_positions)
                    : scaling.value<double>("factor");
  rope.low_frequency = scaling.value<double>("low_freq_factor", rope.low_frequency);
  rope.high_frequency = scaling.value<double>("high_freq_factor", rope.high_frequency);
  rope.beta_fast = scaling.value<double>("beta_fast", rope.beta_fast);
  rope.beta_slow = scaling.value<double>("beta_slow", rope.beta_slow);
  rope.truncate = scaling.value<bool>("truncate", rope.truncate);
  if (rope.scaling == Rope::Scaling::yarn) rope.magnitude = yarn_magnitude(scaling, rope.factor);
  if (rope.scaling == Rope::Scaling::longrope) {
    rope.short_factors = numbers(scaling, "short_factor");
    rope.long_factors = numbers(scaling, "long_factor");
    rope.magnitude = scaling.value<double>("attention_factor", 0);
  }
}

// One object of rotary parameters; what it lacks is at the top of the file or the family's.
Rope rope_from_object(const ConfigReader& top, const Json& object, const Config& config, const RopeDefaults& defaults) {
  Rope rope;
  const ConfigReader scaling{object, top.source};
  rope.theta = scaling.value<double>("rope_theta", top.value<double>(defaults.theta_key, defaults.theta));
  const double part =
      scaling.value<double>("partial_rotary_factor", top.value<double>(defaults.part_key, defaults.part));
  if (!(part > 0 && part <= 1))
    fail("{}: {} is {}, which must be above 0 and at most 1", top.source, defaults.part_key, part);
  if (part < 1) rope.size = static_cast<int64_t>(static_cast<double>(config.head_size) * part);
  if (part < 1 && rope.size == 0) fail("{}: {} is {}, which rotates nothing", top.source, defaults.part_key, part);
  rope.scaling = scaling_from_name(
      scaling.value<std::string>("rope_type", scaling.value<std::string>("type", "default")), top.source);
  if (rope.scaling != Rope::Scaling::none) read_scaling(top, scaling, config.max_positions, rope);
  return rope;
}

// Old files have `rope_theta` at the top and `rope_scaling`; those of transformers 5 `rope_parameters` with both. A
// `rope_scaling` that is not empty wins.
const Json& rope_object(const ConfigReader& top) {
  static const Json none = Json::object();
  const char* key = top.has("rope_scaling") && !top.json["rope_scaling"].empty() ? "rope_scaling" : "rope_parameters";
  if (!top.has(key)) return none;
  if (!top.json[key].is_object()) fail("{}: the value of '{}' is not an object", top.source, key);
  return top.json[key];
}

Rope rope_from_json(const ConfigReader& top, const Config& config, const RopeDefaults& defaults = {}) {
  return rope_from_object(top, rope_object(top), config, defaults);
}

// A number or a list of them, of which the first is the model's.
int64_t token_id(const ConfigReader& reader, const char* key) {
  if (!reader.has(key)) return -1;
  const Json& value = reader.json[key];
  const Json& first = value.is_array() && !value.empty() ? value[0] : value;
  if (!first.is_number_integer())
    fail("{}: the value of '{}' is {}, which is not a token id", reader.source, key, value.dump());
  return first.get<int64_t>();
}

Activation activation_from_json(const ConfigReader& reader, const char* key, const char* fallback) {
  const auto name = reader.value<std::string>(key, fallback);
  const std::pair<const char*, Activation> known[] = {{"silu", Activation::silu},
                                                      {"swish", Activation::silu},
                                                      {"gelu", Activation::gelu},
                                                      {"gelu_new", Activation::gelu_tanh},
                                                      {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                      {"gelu_fast", Activation::gelu_tanh},
                                                      {"relu", Activation::relu}};
  for (const auto& [spelling, activation] : known) {
    if (name == spelling) return activation;
  }
  fail("{}: {} '{}' is not supported; silu, gelu, gelu_new, gelu_pytorch_tanh and relu are", reader.source, key, name);
}

// `layer_types` where it is given, else the family's rule.
void read_layer_types(const ConfigReader& reader, Config& config, const std::function<bool(int64_t layer)>& slides) {
  std::vector<bool> sliding;
  if (reader.has("layer_types")) {
    const Json& types = reader.json["layer_types"];
    if (!types.is_array()) fail("{}: the value of 'layer_types' is not a list", reader.source);
    for (const Json& type : types) {
      if (type != "full_attention" && type != "sliding_attention") {
        fail("{}: layer_types holds {}, and only full_attention and sliding_attention are supported", reader.source,
             type.dump());
      }
      sliding.push_back(type == "sliding_attention");
    }
    if (static_cast<int64_t>(sliding.size()) != config.layers)
      fail("{}: layer_types has {} entries for {} layers", reader.source, sliding.size(), config.layers);
  } else {
    for (int64_t layer = 0; layer < std::min(config.layers, int64_t{4096}); ++layer) sliding.push_back(slides(layer));
  }
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) return;
  config.sliding = sliding;
}

void read_sizes(const ConfigReader& reader, Config& config, const char* mlp_key = "intermediate_size") {
  config.vocabulary_size = reader.value<int64_t>("vocab_size");
  config.hidden_size = reader.value<int64_t>("hidden_size");
  config.layers = reader.value<int64_t>("num_hidden_layers");
  config.heads = reader.value<int64_t>("num_attention_heads");
  if (config.heads <= 0) fail("{}: num_attention_heads is {}, which must be positive", reader.source, config.heads);
  config.mlp_size = reader.value<int64_t>(mlp_key);
  config.max_positions = reader.value<int64_t>("max_position_embeddings", config.max_positions);
}

// Everything in which Llama's descendants differ by numbers alone.
void read_llama_like(const ConfigReader& reader, Config& config, int64_t absent_key_value_heads,
                     int64_t absent_head_size, double epsilon = 1e-6, bool tied = false, bool null_allowed = true) {
  read_sizes(reader, config);
  config.key_value_heads = key_value_heads(
      reader, config, absent_key_value_heads == 0 ? config.heads : absent_key_value_heads, null_allowed);
  const bool absent = !reader.json.contains("head_dim");
  config.head_size = reader.value<int64_t>(
      "head_dim", absent && absent_head_size > 0 ? absent_head_size : config.hidden_size / config.heads);
  config.norm_epsilon = reader.value<double>("rms_norm_eps", epsilon);
  config.tied_head = reader.value<bool>("tie_word_embeddings", tied);
}

void read_llama(const ConfigReader& reader, Config& config) {
  read_llama_like(reader, config, 0, 0);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.mlp_bias = reader.value<bool>("mlp_bias", false);
  config.rope = rope_from_json(reader, config);
}

// Absent means 4096, null none.
void read_window_everywhere(const ConfigReader& reader, Config& config, int64_t absent) {
  const char* key = "sliding_window";
  config.window = reader.json.contains(key) ? reader.value<int64_t>(key, 0) : absent;
  if (reader.has(key) && config.window <= 0)
    fail("{}: sliding_window is {}, which must be positive", reader.source, config.window);
  if (config.window > 0) read_layer_types(reader, config, [](int64_t) { return true; });
}

void read_mistral(const ConfigReader& reader, Config& config) {
  read_llama_like(reader, config, 8, 0, 1e-6, false, false);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.rope = rope_from_json(reader, config);
  read_window_everywhere(reader, config, 4096);
}

void read_qwen(const ConfigReader& reader, Config& config, int64_t absent_head_size) {
  read_llama_like(reader, config, 32, absent_head_size);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.rope = rope_from_json(reader, config);
  const bool may_slide = reader.value<bool>("use_sliding_window", false);
  config.window = !may_slide                               ? 0
                  : reader.json.contains("sliding_window") ? reader.value<int64_t>("sliding_window", 0)
                                                           : 4096;
  const int64_t first = reader.value<int64_t>("max_window_layers", 28);
  read_layer_types(reader, config, [&](int64_t layer) { return config.window > 0 && layer >= first; });
}

void read_qwen2(const ConfigReader& reader, Config& config) {
  read_qwen(reader, config, 0);
  config.query_key_value_bias = true;
}

void read_qwen3(const ConfigReader& reader, Config& config) {
  read_qwen(reader, config, 128);
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.query_key_norm = QueryKeyNorm::each_head;
}

void read_smollm3(const ConfigReader& reader, Config& config) {
  read_llama_like(reader, config, 4, 0, 1e-6, true);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.mlp_bias = reader.value<bool>("mlp_bias", false);
  config.rope = rope_from_json(reader, config, {.theta = 2000000});
  config.unrotated.clear();
  if (reader.has("no_rope_layers")) {
    const Json& rotated = reader.json["no_rope_layers"];
    if (!rotated.is_array()) fail("{}: the value of 'no_rope_layers' is not a list", reader.source);
    for (const Json& one : rotated) {
      if (one != 0 && one != 1)
        fail("{}: no_rope_layers holds {}, which is neither 0 nor 1", reader.source, one.dump());
      config.unrotated.push_back(one == 0);  // the key's name notwithstanding, 1 means rotated
    }
  } else {
    const int64_t every = reader.value<int64_t>("no_rope_layer_interval", 4);
    if (every <= 0) fail("{}: no_rope_layer_interval is {}, which must be positive", reader.source, every);
    for (int64_t layer = 0; layer < std::min(config.layers, int64_t{4096}); ++layer)
      config.unrotated.push_back((layer + 1) % every == 0);
  }
  config.window = reader.value<bool>("use_sliding_window", false) ? reader.value<int64_t>("sliding_window", 0) : 0;
  if (static_cast<int64_t>(config.unrotated.size()) != config.layers) return;  // validate() says so
  read_layer_types(reader, config,
                   [&](int64_t layer) { return config.window > 0 && config.unrotated[static_cast<size_t>(layer)]; });
}

void read_gemma_like(const ConfigReader& reader, Config& config, int64_t absent_key_value_heads) {
  read_llama_like(reader, config, absent_key_value_heads, 256, 1e-6, true, false);
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.norm = NormKind::zero_centred_rms;
  config.scaled_embedding = true;
}

void read_gemma(const ConfigReader& reader, Config& config) {
  read_gemma_like(reader, config, 16);
  config.activation = activation_from_json(reader, "hidden_act", "gelu_pytorch_tanh");
  if (config.activation == Activation::gelu) config.activation = Activation::gelu_tanh;  // what the first files mean
  config.rope = rope_from_json(reader, config);
}

void read_gemma2_and_3(const ConfigReader& reader, Config& config) {
  read_gemma_like(reader, config, 4);
  config.activation = activation_from_json(reader, "hidden_activation", "gelu_pytorch_tanh");
  config.norm_after = true;
  config.query_scale = reader.value<double>("query_pre_attn_scalar", 256);
  if (!(config.query_scale > 0))
    fail("{}: query_pre_attn_scalar is {}, which must be positive", reader.source, config.query_scale);
  config.window = reader.json.contains("sliding_window") ? reader.value<int64_t>("sliding_window", 0) : 4096;
}

// Absent means the family's, null none.
double softcap(const ConfigReader& reader, const char* key, double absent) {
  const double cap = reader.json.contains(key) ? reader.value<double>(key, 0) : absent;
  if (reader.has(key) && !(cap > 0)) fail("{}: {} is {}, which must be positive", reader.source, key, cap);
  return cap;
}

void read_gemma2(const ConfigReader& reader, Config& config) {
  read_gemma2_and_3(reader, config);
  config.attention_softcap = softcap(reader, "attn_logit_softcapping", 50);
  config.head_softcap = softcap(reader, "final_logit_softcapping", 30);
  config.rope = rope_from_json(reader, config);
  read_layer_types(reader, config, [](int64_t layer) { return layer % 2 == 0; });
}

void read_gemma3(const ConfigReader& reader, Config& config) {
  if (reader.value<bool>("use_bidirectional_attention", false))
    fail("{}: use_bidirectional_attention is true: only causal attention is supported", reader.source);
  read_gemma2_and_3(reader, config);
  config.query_key_norm = QueryKeyNorm::each_head;
  config.head_softcap = softcap(reader, "final_logit_softcapping", 0);
  const int64_t pattern = reader.value<int64_t>("sliding_window_pattern", 6);
  if (pattern <= 0) fail("{}: sliding_window_pattern is {}, which must be positive", reader.source, pattern);
  read_layer_types(reader, config, [pattern](int64_t layer) { return (layer + 1) % pattern != 0; });
  const RopeDefaults full{.theta = 1000000}, local{.theta = 10000, .theta_key = "rope_local_base_freq"};
  const Json& object = rope_object(reader);
  if (!object.contains("full_attention") && !object.contains("sliding_attention")) {
    config.rope = rope_from_object(reader, object, config, full);
    config.local_rope = rope_from_object(reader, Json::object(), config, local);
    return;
  }
  const auto nested = [&](const char* type, const RopeDefaults& defaults) {
    const bool given = object.contains(type) && !object[type].is_null();
    if (given && !object[type].is_object()) fail("{}: rope_parameters '{}' is not an object", reader.source, type);
    return rope_from_object(reader, given ? object[type] : Json::object(), config, defaults);
  };
  config.rope = nested("full_attention", full);
  config.local_rope = nested("sliding_attention", local);
}

void read_phi3(const ConfigReader& reader, Config& config) {
  read_llama_like(reader, config, 0, 0, 1e-5);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.rope = rope_from_json(reader, config);
  read_window_everywhere(reader, config, 0);
}

void read_olmo2(const ConfigReader& reader, Config& config) {
  read_llama_like(reader, config, 0, 0, 1e-5);
  config.activation = activation_from_json(reader, "hidden_act", "silu");
  config.attention_bias = reader.value<bool>("attention_bias", false);
  config.norm_before = false;
  config.norm_after = true;
  config.query_key_norm = QueryKeyNorm::whole;
  config.rope = rope_from_json(reader, config);
}

// Scores scaled in another way than the paper's: none that people have.
void check_gpt2_scores(const ConfigReader& reader) {
  if (!reader.value<bool>("scale_attn_weights", true) || reader.value<bool>("scale_attn_by_inverse_layer_idx", false)) {
    fail("{}: scale_attn_weights false and scale_attn_by_inverse_layer_idx true are not supported", reader.source);
  }
  if (reader.value<bool>("add_cross_attention", false)) fail("{}: cross-attention is not supported", reader.source);
}

void read_gpt2(const ConfigReader& reader, Config& config) {
  check_gpt2_scores(reader);
  config.vocabulary_size = reader.value<int64_t>("vocab_size");
  config.hidden_size = reader.value<int64_t>("n_embd");
  config.layers = reader.value<int64_t>("n_layer");
  config.heads = config.key_value_heads = reader.value<int64_t>("n_head");
  config.max_positions = reader.value<int64_t>("n_positions", reader.value<int64_t>("n_ctx", 1024));
  const int64_t usual =
      4 * std::clamp<int64_t>(config.hidden_size, 0, int64_t{1} << 32);  // validate() says if too wide
  config.mlp_size = reader.value<int64_t>("n_inner", usual);
  if (config.heads <= 0 || config.hidden_size % config.heads != 0)
    fail("{}: n_embd {} is not a multiple of n_head {}", reader.source, config.hidden_size, config.heads);
  config.head_size = config.hidden_size / config.heads;
  config.norm = NormKind::layer;
  config.norm_epsilon = reader.value<double>("layer_norm_epsilon", 1e-5);
  config.activation = activation_from_json(reader, "activation_function", "gelu_new");
  config.gated = false;
  config.learned_positions = true;
  config.attention_bias = config.mlp_bias = true;
  config.tied_head = reader.value<bool>("tie_word_embeddings", true);
}

void read_gpt_neox(const ConfigReader& reader, Config& config) {
  read_sizes(reader, config);
  config.key_value_heads = config.heads;
  if (config.hidden_size % config.heads != 0) {
    fail("{}: hidden_size {} is not a multiple of num_attention_heads {}", reader.source, config.hidden_size,
         config.heads);
  }
  config.head_size = config.hidden_size / config.heads;
  config.norm = NormKind::layer;
  config.norm_epsilon = reader.value<double>("layer_norm_eps", 1e-5);
  config.activation = activation_from_json(reader, "hidden_act", "gelu");
  config.gated = false;
  config.attention_bias = reader.value<bool>("attention_bias", true);
  config.mlp_bias = true;
  config.parallel_residual = reader.value<bool>("use_parallel_residual", true);
  config.tied_head = reader.value<bool>("tie_word_embeddings", false);
  config.rope =
      rope_from_json(reader, config, {.part = 0.25, .theta_key = "rotary_emb_base", .part_key = "rotary_pct"});
}

struct Family {
  const char* model_type;
  void (*read)(const ConfigReader&, Config&);
};

constexpr Family families[] = {{"llama", read_llama},   {"mistral", read_mistral},    {"qwen2", read_qwen2},
                               {"qwen3", read_qwen3},   {"smollm3", read_smollm3},    {"gemma", read_gemma},
                               {"gemma2", read_gemma2}, {"gemma3_text", read_gemma3}, {"phi3", read_phi3},
                               {"olmo2", read_olmo2},   {"gpt2", read_gpt2},          {"gpt_neox", read_gpt_neox}};

// Models that see images too keep their language model's settings by themselves; what they leave out is at the top.
Json language_part(const Json& json, const std::string& source) {
  if (!json.contains("text_config")) return json;
  if (!json["text_config"].is_object()) fail("{}: the value of 'text_config' is not an object", source);
  Json text = json["text_config"];
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "model_type"}) {
    if (json.contains(key) && !text.contains(key)) text[key] = json[key];
  }
  return text;
}

}  // namespace

const std::vector<std::string>& model_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Family& family : families) all.emplace_back(family.model_type);
    return all;
  }();
  return names;
}

Config config_from_json(const Json& whole, const std::string& source) {
  if (!whole.is_object()) fail("{}: not a JSON object", source);
  const Json json = language_part(whole, source);
  const ConfigReader reader{json, source};
  Config config;
  config.model_type = reader.value<std::string>("model_type");
  if (config.model_type == "gemma3") config.model_type = "gemma3_text";
  const auto* family = std::find_if(std::begin(families), std::end(families),
                                    [&](const Family& one) { return config.model_type == one.model_type; });
  if (family == std::end(families)) {
    fail("{}: architecture '{}' is not supported{}; {} are", source, config.model_type,
         suggestion(config.model_type, model_families()), listing(model_families()));
  }
  family->read(reader, config);
  config.bos = token_id(reader, "bos_token_id");
  config.eos = token_id(reader, "eos_token_id");
  config.pad = token_id(reader, "pad_token_id");
  validate(config, source);
  return config;
}

}  // namespace kullback
