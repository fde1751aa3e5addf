#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/io/gguf.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

// What a Hugging Face tensor is called in a GGUF file: `model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`.
std::string gguf_name(const std::string& name) {
  static const std::pair<const char*, const char*> whole[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                                              {"model.norm.weight", "output_norm.weight"},
                                                              {"lm_head.weight", "output.weight"}};
  static const std::pair<const char*, const char*> parts[] = {
      {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [ours, theirs] : whole) {
    if (name == ours) return theirs;
  }
  const std::string prefix = "model.layers.";
  const size_t dot = name.find('.', prefix.size()), last = name.rfind('.');
  const std::string layer = name.substr(prefix.size(), dot - prefix.size()),
                    module = name.substr(dot + 1, last - dot - 1);
  for (const auto& [ours, theirs] : parts) {
    if (module == ours) return "blk." + layer + "." + theirs + name.substr(last);
  }
  throw std::logic_error("no GGUF name for " + name);
}

Rope rope_from_gguf(const GgufFile& file, const Config& config) {
  const GgufMetadata& metadata = file.metadata();
  Rope rope;
  rope.theta = metadata.number("llama.rope.freq_base", rope.theta);
  const std::string scaling = metadata.string("llama.rope.scaling.type", "none");
  const double old_linear = metadata.number("llama.rope.scale_linear", 1);
  if (scaling == "linear" || (scaling == "none" && old_linear != 1)) {
    rope.scaling = Rope::Scaling::linear;
    rope.factor = metadata.number("llama.rope.scaling.factor", old_linear);
  } else if (scaling == "yarn") {
    rope.scaling = Rope::Scaling::yarn;
    rope.factor = metadata.number("llama.rope.scaling.factor");
    rope.original_positions = metadata.integer("llama.rope.scaling.original_context_length", config.max_positions);
  } else if (scaling != "none") {
    fail("{}: llama.rope.scaling.type '{}' is not supported; none, linear and yarn are", file.name(), scaling);
  }
  return rope;
}

// Llama 3.1 to 3.3 carry the divisor of each frequency instead of the rule that made them; the rule is found again, so
// that the model can be written in other formats.
void recognise_llama3(const GgufFile& file, Config& config) {
  const GgufTensor* divisors = file.find("rope_freqs.weight");
  if (!divisors) return;
  const int64_t pairs = config.head_size / 2;
  check_shape(file.name(), divisors->name, divisors->shape, {pairs});
  std::vector<float> divisor(static_cast<size_t>(pairs));
  dequantize(*divisors, divisor);
  const std::vector<double> plain = rope_frequencies({.theta = config.rope.theta}, config.head_size);
  for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0}) {
    const Rope rule{
        .theta = config.rope.theta, .scaling = Rope::Scaling::llama3, .factor = factor, .original_positions = 8192};
    const std::vector<double> scaled = rope_frequencies(rule, config.head_size);
    bool same = true;
    for (size_t j = 0; j < plain.size(); ++j) same &= std::abs(plain[j] / scaled[j] / divisor[j] - 1) < 1e-4;
    if (same) {
      config.rope = rule;
      return;
    }
  }
  fail("{}: the frequencies in tensor 'rope_freqs.weight' are not those of Llama 3.1 to 3.3, the only ones supported",
       file.name());
}

int64_t token_id(const GgufFile& file, const char* key) {
  return file.metadata().integer(std::string("tokenizer.ggml.") + key, -1);
}

Config config_from_gguf(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const std::string architecture = metadata.string("general.architecture");
  if (architecture != "llama") fail("{}: architecture '{}' is not supported; llama is", file.name(), architecture);
  const auto integer = [&](const char* key) { return metadata.integer(std::string("llama.") + key); };
  Config config;
  config.hidden_size = integer("embedding_length");
  config.layers = integer("block_count");
  config.heads = integer("attention.head_count");
  if (config.heads <= 0)
    fail("{}: llama.attention.head_count is {}, which must be positive", file.name(), config.heads);
  config.key_value_heads = metadata.integer("llama.attention.head_count_kv", config.heads);
  config.head_size = metadata.integer("llama.attention.key_length", config.hidden_size / config.heads);
  config.mlp_size = integer("feed_forward_length");
  config.max_positions = integer("context_length");
  config.norm_epsilon = metadata.number("llama.attention.layer_norm_rms_epsilon", config.norm_epsilon);
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  if (embedding.shape.size() != 2) fail("{}: tensor 'token_embd.weight' is not a matrix", file.name());
  config.vocabulary_size = embedding.shape[0];
  config.rope = rope_from_gguf(file, config);
  config.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_down.bias") != nullptr;
  config.tied_head = file.find("output.weight") == nullptr;
  config.bos = token_id(file, "bos_token_id");
  config.eos = token_id(file, "eos_token_id");
  config.pad = token_id(file, "padding_token_id");
  validate(config, file.name());
  if (metadata.integer("llama.rope.dimension_count", config.head_size) != config.head_size) {
    fail("{}: llama.rope.dimension_count is not the head size {}: heads rotated in part are not supported", file.name(),
         config.head_size);
  }
  if (metadata.integer("llama.attention.value_length", config.head_size) != config.head_size) {
    fail("{}: llama.attention.value_length differs from the head size {}", file.name(), config.head_size);
  }
  recognise_llama3(file, config);
  return config;
}

// llama.cpp rotates the pairs (2j, 2j+1) and orders the rows of the query and key weights for that; here pairs are
// (j, j + d/2), as in Hugging Face's files.
void unpermute(const at::Tensor& from, at::Tensor& into, int64_t heads) {
  const int64_t half = into.size(0) / heads / 2;
  into.view({heads, 2, half, -1}).copy_(from.view({heads, half, 2, -1}).transpose(1, 2));
}

void read_weight(const Config& config, const std::string& name, const GgufTensor& tensor, at::Tensor& into) {
  const bool query = name.find("self_attn.q_proj") != std::string::npos,
             key = name.find("self_attn.k_proj") != std::string::npos;
  const bool direct = into.scalar_type() == at::kFloat && !query && !key;
  const at::Tensor numbers = direct ? into : at::empty(into.sizes(), at::kFloat);
  dequantize(tensor, {numbers.mutable_data_ptr<float>(), static_cast<size_t>(numbers.numel())});
  if (query || key) {
    unpermute(numbers, into, query ? config.heads : config.key_value_heads);
  } else if (!direct) {
    into.copy_(numbers);
  }
  release_pages(tensor.bytes);
}

// A llama file may describe what this transformer is not, a mixture of experts for one.
void check_all_used(const GgufFile& file, const Config& config) {
  std::set<std::string> used = {"rope_freqs.weight"};
  const Transformer shapes = empty_transformer(config, at::TensorOptions(at::kFloat).device(at::kMeta));
  for (const NamedTensor& named : shapes.parameters()) used.insert(gguf_name(named.name));
  for (const GgufTensor& tensor : file.tensors()) {
    if (!used.contains(tensor.name))
      fail("{}: tensor '{}' is not part of a plain llama model", file.name(), tensor.name);
  }
}

Transformer transformer_from_gguf(const GgufFile& file, at::ScalarType dtype) {
  const Config config = config_from_gguf(file);
  check_all_used(file, config);
  WeightSource source;
  source.name = file.name();
  source.stored_name = gguf_name;
  source.shape = [&](const std::string& name) { return std::span<const int64_t>(file.tensor(gguf_name(name)).shape); };
  source.read = [&](const std::string& name, at::Tensor& into) {
    read_weight(config, name, file.tensor(gguf_name(name)), into);
  };
  return read_weights(config, dtype, source);
}

std::optional<int32_t> optional_id(int64_t id) {
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file, const Config& config) {
  const GgufMetadata& metadata = file.metadata();
  if (!metadata.contains("tokenizer.ggml.model")) return std::nullopt;
  const std::string kind = metadata.string("tokenizer.ggml.model");
  if (kind != "gpt2") fail("{}: tokenizer '{}' is not supported; gpt2 (byte-level BPE) is", file.name(), kind);
  BpeSpec spec;
  spec.name = file.name();
  spec.tokens = metadata.strings("tokenizer.ggml.tokens");
  spec.merges = metadata.strings("tokenizer.ggml.merges");
  if (metadata.contains("tokenizer.ggml.token_type")) spec.types = metadata.integers("tokenizer.ggml.token_type");
  spec.pre_tokenizer = metadata.string("tokenizer.ggml.pre", "gpt2");
  spec.special = {optional_id(config.bos), optional_id(config.eos), optional_id(config.pad),
                  optional_id(token_id(file, "unknown_token_id"))};
  spec.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token", false);
  spec.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token", false);
  spec.add_prefix_space = metadata.boolean("tokenizer.ggml.add_space_prefix", false);
  if (static_cast<int64_t>(spec.tokens.size()) > config.vocabulary_size) {
    fail("{}: the tokenizer has {} tokens and the embedding only {} rows", file.name(), spec.tokens.size(),
         config.vocabulary_size);
  }
  return Tokenizer(spec);
}

// The end of a turn stops an answer as the end of a text does.
GenerationDefaults generation_from_gguf(const GgufFile& file, const Config& config) {
  GenerationDefaults defaults;
  for (const int64_t id : {config.eos, token_id(file, "eot_token_id"), token_id(file, "eom_token_id")}) {
    const auto stop = static_cast<int32_t>(id);
    std::vector<int32_t>& all = defaults.stop_ids;
    if (id >= 0 && std::find(all.begin(), all.end(), stop) == all.end()) all.push_back(stop);
  }
  return defaults;
}

}  // namespace

Model read_gguf(const std::filesystem::path& path, at::ScalarType dtype) {
  const GgufFile file = GgufFile::open(path);
  Model model;
  model.name = path.string();
  model.transformer = transformer_from_gguf(file, dtype);
  model.tokenizer = tokenizer_from_gguf(file, model.config());
  model.generation = generation_from_gguf(file, model.config());
  set_chat_template(model, file.metadata().string("tokenizer.chat_template", ""));
  return model;
}

}  // namespace kullback
