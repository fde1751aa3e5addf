// A GGUF file's settings, said in the words of config.json, so that each family's rules and defaults exist once.
#include "kullback/lm/gguf_config.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

// Mistral's files are llama's: the later name for the same layout.
constexpr std::pair<const char*, const char*> architectures[] = {
    {"llama", "llama"},     {"llama", "mistral"}, {"qwen2", "qwen2"},   {"qwen3", "qwen3"},
    {"smollm3", "smollm3"}, {"gemma", "gemma"},   {"gemma2", "gemma2"}, {"gemma3", "gemma3_text"},
    {"phi3", "phi3"},       {"olmo2", "olmo2"},   {"gpt2", "gpt2"},     {"gptneox", "gpt_neox"}};

// The metadata of one architecture: its keys begin with its name.
struct Settings {
  const GgufFile& file;
  std::string architecture;

  std::string key(const char* name) const { return architecture + "." + name; }
  bool has(const char* name) const { return file.metadata().contains(key(name)); }
  int64_t integer(const char* name) const { return file.metadata().integer(key(name)); }
  int64_t integer(const char* name, int64_t fallback) const { return file.metadata().integer(key(name), fallback); }
  // The shortest decimal number that the file's float32 stands for: 1e-5, not 9.99999974e-6.
  double number(const char* name, double fallback) const {
    if (!has(name)) return fallback;
    return std::stod(fmt::format("{}", static_cast<float>(file.metadata().number(key(name)))));
  }
};

std::vector<float> read_vector(const GgufFile& file, const std::string& name, int64_t length) {
  const GgufTensor& tensor = file.tensor(name);
  check_shape(file.name(), name, tensor.shape, {length});
  std::vector<float> numbers(static_cast<size_t>(length));
  dequantize(tensor, numbers);
  return numbers;
}

Json longrope_json(const Settings& settings, int64_t pairs, int64_t original, int64_t positions) {
  Json json = {{"rope_type", "longrope"},
               {"short_factor", read_vector(settings.file, "rope_factors_short.weight", pairs)},
               {"long_factor", read_vector(settings.file, "rope_factors_long.weight", pairs)},
               {"original_max_position_embeddings", original},
               {"factor", static_cast<double>(positions) / static_cast<double>(original)}};
  if (settings.has("rope.scaling.attn_factor"))
    json["attention_factor"] = settings.number("rope.scaling.attn_factor", 1);
  return json;
}

Json rope_scaling_json(const Settings& settings, int64_t pairs, int64_t positions) {
  const int64_t original = settings.integer("rope.scaling.original_context_length", positions);
  if (settings.file.find("rope_factors_long.weight")) return longrope_json(settings, pairs, original, positions);
  const std::string type = settings.file.metadata().string(settings.key("rope.scaling.type"), "none");
  const double old_linear = settings.number("rope.scale_linear", 1);
  if (type == "linear" || (type == "none" && old_linear != 1))
    return {{"rope_type", "linear"}, {"factor", settings.number("rope.scaling.factor", old_linear)}};
  if (type == "yarn") {
    return {{"rope_type", "yarn"},
            {"factor", settings.file.metadata().number(settings.key("rope.scaling.factor"))},
            {"original_max_position_embeddings", original}};
  }
  if (type != "none") {
    fail("{}: {} '{}' is not supported; none, linear and yarn are", settings.file.name(),
         settings.key("rope.scaling.type"), type);
  }
  return {};
}

// The settings that all families share.
Json common_json(const Settings& settings) {
  const GgufFile& file = settings.file;
  const int64_t width = settings.integer("embedding_length"), heads = settings.integer("attention.head_count");
  if (heads <= 0)
    fail("{}: {} is {}, which must be positive", file.name(), settings.key("attention.head_count"), heads);
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  if (embedding.shape.size() != 2) fail("{}: tensor 'token_embd.weight' is not a matrix", file.name());
  const int64_t head_size = settings.integer("attention.key_length", width / heads),
                positions = settings.integer("context_length"),
                turned = settings.integer("rope.dimension_count", head_size);
  if (settings.integer("attention.value_length", head_size) != head_size)
    fail("{}: {} differs from the head size {}", file.name(), settings.key("attention.value_length"), head_size);
  if (turned < 2 || turned > head_size) {
    fail("{}: {} is {}, which must be from 2 to the head size {}", file.name(), settings.key("rope.dimension_count"),
         turned, head_size);
  }
  const auto token = [&](const char* key) {
    const int64_t id = file.metadata().integer(std::string("tokenizer.ggml.") + key, -1);
    return id < 0 ? Json() : Json(id);
  };
  const bool layer_norm = settings.has("attention.layer_norm_epsilon");
  Json json = {
      {"vocab_size", embedding.shape[0]},
      {"hidden_size", width},
      {"intermediate_size", settings.integer("feed_forward_length")},
      {"num_hidden_layers", settings.integer("block_count")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", settings.integer("attention.head_count_kv", heads)},
      {"head_dim", head_size},
      {"max_position_embeddings", positions},
      {layer_norm ? "layer_norm_eps" : "rms_norm_eps",
       settings.number(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-6)},
      {"rope_scaling", rope_scaling_json(settings, turned / 2, positions)},
      {"attention_bias", file.find("blk.0.attn_q.bias") || file.find("blk.0.attn_qkv.bias")},
      {"mlp_bias", file.find("blk.0.ffn_down.bias") != nullptr},
      {"tie_word_embeddings", file.find("output.weight") == nullptr},
      {"bos_token_id", token("bos_token_id")},
      {"eos_token_id", token("eos_token_id")},
      {"pad_token_id", token("padding_token_id")}};
  if (settings.has("rope.freq_base")) json["rope_theta"] = settings.number("rope.freq_base", 0);
  // A share that, multiplied and rounded down as readers do, gives the number back.
  if (turned != head_size)
    json["partial_rotary_factor"] = std::nextafter(static_cast<double>(turned) / static_cast<double>(head_size), 2);
  return json;
}

// The scores of the two largest models are scaled by another size than the head's; no key says so.
Json gemma_query_scale(const Json& json, int64_t layers_of_the_largest) {
  const auto size = [&](const char* key) { return json[key].get<int64_t>(); };
  return size("num_hidden_layers") == layers_of_the_largest ? size("hidden_size") / size("num_attention_heads")
                                                            : size("head_dim");
}

void add_family_settings(const Settings& settings, Json& json) {
  const std::string family = json["model_type"];
  const auto softcap = [&](const char* key) {
    const double cap = settings.number(key, 0);
    return cap > 0 ? Json(cap) : Json();
  };
  if (family == "phi3" && settings.integer("attention.sliding_window", 0) > 0)
    json["sliding_window"] = settings.integer("attention.sliding_window");
  if (family == "gemma2") {
    json["query_pre_attn_scalar"] = gemma_query_scale(json, 46);
    json["sliding_window"] = settings.integer("attention.sliding_window", 4096);
    json["attn_logit_softcapping"] = softcap("attn_logit_softcapping");
    json["final_logit_softcapping"] = softcap("final_logit_softcapping");
  }
  if (family == "gemma3_text") {
    json["query_pre_attn_scalar"] = gemma_query_scale(json, 62);
    json["sliding_window"] = settings.integer("attention.sliding_window", 1024);
    json["final_logit_softcapping"] = softcap("final_logit_softcapping");
    if (settings.has("attention.sliding_window_pattern"))
      json["sliding_window_pattern"] = settings.integer("attention.sliding_window_pattern");
    json["rope_local_base_freq"] = settings.number("rope.freq_base_swa", 10000);
  }
  if (family == "gpt_neox") {
    json["use_parallel_residual"] = settings.file.metadata().boolean(settings.key("use_parallel_residual"), true);
    json["rotary_pct"] = json.contains("partial_rotary_factor") ? json["partial_rotary_factor"] : Json(1.0);
    if (json.contains("rope_theta")) json["rotary_emb_base"] = json["rope_theta"];
  }
  if (family == "gpt2") {
    const std::pair<const char*, const char*> names[] = {{"n_embd", "hidden_size"},
                                                         {"n_layer", "num_hidden_layers"},
                                                         {"n_head", "num_attention_heads"},
                                                         {"n_inner", "intermediate_size"},
                                                         {"n_positions", "max_position_embeddings"},
                                                         {"layer_norm_epsilon", "layer_norm_eps"}};
    for (const auto& [theirs, ours] : names) {
      if (json.contains(ours)) json[theirs] = json[ours];
    }
  }
}

// Llama 3.1 to 3.3 carry the divisor of each frequency instead of the rule that made them; the rule is found again, so
// that the model can be written in other formats.
void recognise_llama3(const GgufFile& file, Config& config) {
  if (!file.find("rope_freqs.weight")) return;
  const int64_t pairs = config.head_size / 2;
  const std::vector<float> divisor = read_vector(file, "rope_freqs.weight", pairs);
  for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0}) {
    Config rule = config;
    rule.rope.scaling = Rope::Scaling::llama3;
    rule.rope.factor = factor;
    rule.rope.original_positions = 8192;
    const std::vector<float> found = rope_divisors(rule);
    bool same = true;
    for (size_t j = 0; j < found.size(); ++j) same &= std::abs(found[j] / divisor[j] - 1) < 1e-4;
    if (same) {
      config.rope = rule.rope;
      return;
    }
  }
  fail("{}: the frequencies in tensor 'rope_freqs.weight' are not those of Llama 3.1 to 3.3, the only ones supported",
       file.name());
}

}  // namespace

std::string gguf_architecture(const std::string& model_type) {
  for (const auto& [architecture, family] : architectures) {
    if (model_type == family) return architecture;
  }
  return "";
}

std::string family_of_architecture(const std::string& wanted) {
  for (const auto& [architecture, family] : architectures) {
    if (wanted == architecture) return family;
  }
  return "";
}

Config config_from_gguf(const GgufFile& file) {
  const Settings settings{file, file.metadata().string("general.architecture")};
  const std::string family = family_of_architecture(settings.architecture);
  if (family.empty()) {
    std::vector<std::string> known;
    for (const auto& [architecture, model_type] : architectures) {
      if (known.empty() || known.back() != architecture) known.emplace_back(architecture);
    }
    fail("{}: architecture '{}' is not supported{}; {} are", file.name(), settings.architecture,
         suggestion(settings.architecture, known), listing(known));
  }
  Json json = common_json(settings);
  json["model_type"] = family;
  add_family_settings(settings, json);
  Config config = config_from_json(json, file.name());
  recognise_llama3(file, config);
  return config;
}

std::vector<float> rope_divisors(const Config& config) {
  Rope plain = config.rope;
  plain.scaling = Rope::Scaling::none;
  const std::vector<double> before = rope_frequencies(plain, config.head_size),
                            after = rope_frequencies(config.rope, config.head_size);
  std::vector<float> divisors;
  for (size_t j = 0; j < before.size(); ++j) divisors.push_back(static_cast<float>(before[j] / after[j]));
  return divisors;
}

}  // namespace kullback
