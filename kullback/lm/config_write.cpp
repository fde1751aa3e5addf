// config.json as transformers reads it back, rotary positions in the spellings of version 4 and of version 5.
#include <cmath>
#include <stdexcept>
#include <utility>

#include "kullback/lm/config.h"
#include "kullback/lm/rope_names.h"

namespace kullback {
namespace {

const char* scaling_name(Rope::Scaling scaling) {
  for (const auto& [known, name] : rope_scaling_names) {
    if (known == scaling) return name;
  }
  throw std::logic_error("a rotary scaling without a name");
}

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu: return "gelu";
    case Activation::gelu_tanh: return "gelu_pytorch_tanh";
    case Activation::relu: return "relu";
  }
  throw std::logic_error("an activation without a name");
}

// The share of a head that, multiplied and rounded down as readers do, gives the size back.
double rotated_part(const Rope& rope, int64_t head_size) {
  double part = static_cast<double>(rope.size) / static_cast<double>(head_size);
  while (static_cast<int64_t>(part * static_cast<double>(head_size)) < rope.size) part = std::nextafter(part, 2);
  return part;
}

Json rope_object(const Rope& rope, int64_t head_size) {
  using Scaling = Rope::Scaling;
  Json json = {{"rope_type", scaling_name(rope.scaling)}, {"rope_theta", rope.theta}};
  if (rope.size != 0) json["partial_rotary_factor"] = rotated_part(rope, head_size);
  if (rope.scaling != Scaling::none) json["factor"] = rope.factor;
  if (rope.scaling == Scaling::llama3 || rope.scaling == Scaling::yarn || rope.scaling == Scaling::longrope) {
    json["original_max_position_embeddings"] = rope.original_positions;
  }
  if (rope.scaling == Scaling::llama3) {
    json["low_freq_factor"] = rope.low_frequency;
    json["high_freq_factor"] = rope.high_frequency;
  }
  if (rope.scaling == Scaling::yarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["truncate"] = rope.truncate;
  }
  if (rope.scaling == Scaling::yarn || rope.scaling == Scaling::longrope)
    json["attention_factor"] = rope_magnitude(rope);
  if (rope.scaling == Scaling::longrope) {
    json["short_factor"] = rope.short_factors;
    json["long_factor"] = rope.long_factors;
  }
  return json;
}

void write_rope(const Config& config, Json& json) {
  const Json full = rope_object(config.rope, config.head_size);
  const bool neox = config.model_type == "gpt_neox";
  json[neox ? "rotary_emb_base" : "rope_theta"] = config.rope.theta;
  if (config.rope.size != 0) json[neox ? "rotary_pct" : "partial_rotary_factor"] = full["partial_rotary_factor"];
  json["rope_scaling"] = config.rope.scaling == Rope::Scaling::none ? Json() : full;
  json["rope_parameters"] = full;
  if (!config.local_rope) return;
  // Two objects: version 4 has one of them at the top.
  json["rope_local_base_freq"] = config.local_rope->theta;
  json["rope_parameters"] = {{"full_attention", full},
                             {"sliding_attention", rope_object(*config.local_rope, config.head_size)}};
  json.erase("rope_scaling");
}

Json layer_types(const Config& config) {
  Json types = Json::array();
  for (int64_t layer = 0; layer < config.layers; ++layer)
    types.push_back(config.slides(layer) ? "sliding_attention" : "full_attention");
  return types;
}

// Where the window is every layer's or none's, the key alone says so.
void write_window(const Config& config, Json& json) {
  const std::string& family = config.model_type;
  const Json window = config.sliding.empty() ? Json() : Json(config.window);
  if (family == "mistral" || family == "phi3") json["sliding_window"] = window;
  if (family == "qwen2" || family == "qwen3" || family == "smollm3") {
    json["use_sliding_window"] = !config.sliding.empty();
    json["sliding_window"] = window;
    json["layer_types"] = layer_types(config);
  }
  if (family == "gemma2" || family == "gemma3_text") {
    json["sliding_window"] = config.sliding.empty() ? Json(4096) : window;
    json["layer_types"] = layer_types(config);
  }
}

Json softcap(double cap) { return cap > 0 ? Json(cap) : Json(); }

void write_gemma(const Config& config, Json& json) {
  if (config.model_type == "gemma") return;
  // A whole number, as readers insist, unless it is none.
  const auto whole = static_cast<int64_t>(config.query_scale);
  json["query_pre_attn_scalar"] =
      static_cast<double>(whole) == config.query_scale ? Json(whole) : Json(config.query_scale);
  json["final_logit_softcapping"] = softcap(config.head_softcap);
  json["attn_logit_softcapping"] = softcap(config.attention_softcap);
}

void write_smollm3(const Config& config, Json& json) {
  Json rotated = Json::array();
  for (int64_t layer = 0; layer < config.layers; ++layer) rotated.push_back(config.rotates(layer) ? 1 : 0);
  json["no_rope_layers"] = rotated;
}

Json gpt2_json(const Config& config) {
  return {{"n_embd", config.hidden_size},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.mlp_size},
          {"n_positions", config.max_positions},
          {"n_ctx", config.max_positions},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"activation_function", activation_name(config.activation)}};
}

Json llama_like_json(const Config& config) {
  const bool layer_norm = config.norm == NormKind::layer;
  Json json = {{"hidden_size", config.hidden_size},
               {"intermediate_size", config.mlp_size},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.key_value_heads},
               {"head_dim", config.head_size},
               {"hidden_act", activation_name(config.activation)},
               {"max_position_embeddings", config.max_positions},
               {layer_norm ? "layer_norm_eps" : "rms_norm_eps", config.norm_epsilon},
               {"attention_bias", config.attention_bias},
               {"mlp_bias", config.mlp_bias},
               {"attention_dropout", 0.0}};
  if (config.scaled_embedding) json["hidden_activation"] = activation_name(config.activation);
  if (config.model_type == "gpt_neox") json["use_parallel_residual"] = config.parallel_residual;
  if (config.model_type == "phi3")
    json["original_max_position_embeddings"] =
        config.rope.scaling == Rope::Scaling::none ? config.max_positions : config.rope.original_positions;
  write_rope(config, json);
  return json;
}

const char* class_name(const std::string& model_type) {
  const std::pair<const char*, const char*> names[] = {
      {"llama", "LlamaForCausalLM"},   {"mistral", "MistralForCausalLM"},    {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},   {"smollm3", "SmolLM3ForCausalLM"},    {"gemma", "GemmaForCausalLM"},
      {"gemma2", "Gemma2ForCausalLM"}, {"gemma3_text", "Gemma3ForCausalLM"}, {"phi3", "Phi3ForCausalLM"},
      {"olmo2", "Olmo2ForCausalLM"},   {"gpt2", "GPT2LMHeadModel"},          {"gpt_neox", "GPTNeoXForCausalLM"}};
  for (const auto& [known, name] : names) {
    if (model_type == known) return name;
  }
  throw std::logic_error("no class is known for the family " + model_type);
}

}  // namespace

Json config_to_json(const Config& config) {
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  Json json = {{"architectures", {class_name(config.model_type)}},
               {"model_type", config.model_type},
               {"vocab_size", config.vocabulary_size}};
  json.update(config.learned_positions ? gpt2_json(config) : llama_like_json(config));
  write_window(config, json);
  if (config.scaled_embedding) write_gemma(config, json);
  if (config.model_type == "smollm3") write_smollm3(config, json);
  json["tie_word_embeddings"] = config.tied_head;
  json["bos_token_id"] = id(config.bos);
  json["eos_token_id"] = id(config.eos);
  json["pad_token_id"] = id(config.pad);
  json["use_cache"] = true;
  return json;
}

}  // namespace kullback
