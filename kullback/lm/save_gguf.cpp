#include "kullback/lm/save_gguf.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/log.h"
#include "kullback/io/gguf_write.h"
#include "kullback/lm/gguf_config.h"
#include "kullback/lm/gguf_tokenizer.h"
#include "kullback/lm/layout.h"

namespace kullback {
namespace {

// The numbers of llama.cpp's `general.file_type`.
uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return 0;
    case GgmlType::f16: return 1;
    case GgmlType::q4_0: return 2;
    case GgmlType::q4_1: return 3;
    case GgmlType::q8_0: return 7;
    case GgmlType::bf16: return 32;
    default: fail("GGUF files are written in F32, F16, BF16, Q8_0, Q4_0 and Q4_1, not in {}", layout_of(type).name);
  }
}

class Writing {
 public:
  Writing(const Model& model, GgmlType type)
      : model_(model), config_(model.config()), type_(type), architecture_(gguf_architecture(config_.model_type)) {}

  void run(const std::filesystem::path& file) {
    add_settings();
    if (model_.tokenizer) {
      add_tokenizer(writer_, model_);
    } else {
      add_token_ids();
    }
    add_tensors();
    std::vector<std::byte> bytes;
    writer_.write(file, [&](const GgufTensor& tensor) {
      const at::Tensor numbers = tensors_.at(tensor.name)();
      bytes.resize(
          static_cast<size_t>(numbers.numel() / layout_of(tensor.type).block * layout_of(tensor.type).block_bytes));
      quantize(tensor.type, {numbers.const_data_ptr<float>(), static_cast<size_t>(numbers.numel())}, bytes);
      return std::span<const std::byte>(bytes);
    });
  }

 private:
  void count(const char* key, int64_t value) { writer_.add(architecture_ + "." + key, static_cast<uint32_t>(value)); }
  void number(const char* key, double value) { writer_.add(architecture_ + "." + key, static_cast<float>(value)); }

  void add_settings() {
    writer_.add("general.architecture", std::string_view(architecture_));
    const std::filesystem::path name = std::filesystem::path(model_.name).filename();
    writer_.add("general.name", std::string_view(name.empty() ? architecture_ : name.string()));
    writer_.add("general.file_type", file_type(type_));
    count("vocab_size", config_.vocabulary_size);
    count("context_length", config_.max_positions);
    count("embedding_length", config_.hidden_size);
    count("block_count", config_.layers);
    count("feed_forward_length", config_.mlp_size);
    count("attention.head_count", config_.heads);
    count("attention.head_count_kv", config_.key_value_heads);
    count("attention.key_length", config_.head_size);
    count("attention.value_length", config_.head_size);
    number(config_.norm == NormKind::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
           config_.norm_epsilon);
    if (!config_.learned_positions) add_rope();
    add_family_settings();
  }

  // What the configuration knows of tokens that no tokenizer names.
  void add_token_ids() {
    const std::pair<const char*, int64_t> ids[] = {
        {"bos_token_id", config_.bos}, {"eos_token_id", config_.eos}, {"padding_token_id", config_.pad}};
    for (const auto& [key, id] : ids) {
      if (id >= 0) writer_.add(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(id));
    }
  }

  void add_rope() {
    const Rope& rope = config_.rope;
    count("rope.dimension_count", rope.size == 0 ? config_.head_size : rope.size);
    number("rope.freq_base", rope.theta);
    switch (rope.scaling) {
      case Rope::Scaling::none:
      case Rope::Scaling::llama3: break;  // a tensor of divisors says it
      case Rope::Scaling::linear:
        writer_.add(architecture_ + ".rope.scaling.type", "linear");
        number("rope.scaling.factor", rope.factor);
        break;
      case Rope::Scaling::yarn: add_yarn(); break;
      case Rope::Scaling::longrope:
        count("rope.scaling.original_context_length", rope.original_positions);
        number("rope.scaling.attn_factor", rope_magnitude(rope));
        break;
      case Rope::Scaling::dynamic: fail("{}: GGUF has no word for dynamic rotary scaling", model_.name);
    }
  }

  void add_yarn() {
    const Rope& rope = config_.rope;
    if (rope.beta_fast != 32 || rope.beta_slow != 1 || !rope.truncate ||
        std::fabs(rope_magnitude(rope) - (0.1 * std::log(rope.factor) + 1)) > 1e-6) {
      fail("{}: GGUF has no word for yarn with beta_fast, beta_slow, truncate or magnitudes of its own", model_.name);
    }
    writer_.add(architecture_ + ".rope.scaling.type", "yarn");
    number("rope.scaling.factor", rope.factor);
    count("rope.scaling.original_context_length", rope.original_positions);
  }

  // Which layers slide or have no positions is llama.cpp's own knowledge of a family: other choices cannot be said.
  void add_family_settings() {
    const std::string& family = config_.model_type;
    const auto needs = [&](bool as_expected, const char* what) {
      if (!as_expected) fail("{}: GGUF has no word for {} other than {}'s own", model_.name, what, family);
    };
    if (family == "gemma2" || family == "gemma3_text") {
      const bool second = family == "gemma2";
      for (int64_t layer = 0; layer < config_.layers; ++layer) {
        needs(config_.slides(layer) == (second ? layer % 2 == 0 : (layer + 1) % 6 != 0), "a pattern of sliding layers");
      }
      const double largest = static_cast<double>(config_.hidden_size / config_.heads),
                   usual = config_.layers == (second ? 46 : 62) ? largest : static_cast<double>(config_.head_size);
      needs(config_.query_scale == usual, "a query_pre_attn_scalar");
      count("attention.sliding_window", config_.window > 0 ? config_.window : config_.max_positions);
      if (config_.attention_softcap > 0) number("attn_logit_softcapping", config_.attention_softcap);
      if (config_.head_softcap > 0) number("final_logit_softcapping", config_.head_softcap);
      if (config_.local_rope) needs(config_.local_rope->scaling == Rope::Scaling::none, "a scaling of sliding layers");
      if (config_.local_rope) number("rope.freq_base_swa", config_.local_rope->theta);
    } else if (!config_.sliding.empty()) {
      if (family == "phi3") count("attention.sliding_window", config_.window);
      warn(fmt::format("{}: GGUF's {} has no sliding window of {} tokens; longer texts will see more", model_.name,
                       architecture_, config_.window));
    }
    for (int64_t layer = 0; !config_.learned_positions && layer < config_.layers; ++layer)
      needs(config_.rotates(layer) == (family != "smollm3" || (layer + 1) % 4 != 0),
            "a pattern of layers without positions");
    if (family == "gpt_neox") writer_.add(architecture_ + ".use_parallel_residual", config_.parallel_residual);
    if (family == "gemma") needs(config_.activation == Activation::gelu_tanh, "an activation");
  }

  void add_tensor(const std::string& name, std::vector<int64_t> shape, bool matrix,
                  std::function<at::Tensor()> numbers) {
    GgmlType type = matrix ? type_ : GgmlType::f32;
    if (shape.back() % layout_of(type).block != 0) type = GgmlType::f16;
    writer_.add_tensor(name, std::move(shape), type);
    tensors_[name] = std::move(numbers);
  }

  void add_tensors() {
    const Layout& layout = gguf_layout(config_.model_type);
    for (const StoredTensor& stored : stored_tensors(model_.transformer, layout)) {
      // llama.cpp adds positions as they are, in float32.
      const bool matrix = stored_shape(stored).size() == 2 && !stored.name.starts_with("position_embd");
      add_tensor(stored.name, stored_shape(stored), matrix,
                 [stored] { return pack(stored).detach().to(at::kCPU, at::kFloat).contiguous(); });
    }
    const auto vector = [&](const char* name, std::vector<float> values) {
      add_tensor(name, {static_cast<int64_t>(values.size())}, false,
                 [values] { return at::tensor(values, at::kFloat); });
    };
    const auto floats = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    if (config_.rope.scaling == Rope::Scaling::llama3) vector("rope_freqs.weight", rope_divisors(config_));
    if (config_.rope.scaling == Rope::Scaling::longrope) {
      vector("rope_factors_long.weight", floats(config_.rope.long_factors));
      vector("rope_factors_short.weight", floats(config_.rope.short_factors));
    }
  }

  const Model& model_;
  const Config& config_;
  GgmlType type_;
  std::string architecture_;
  GgufWriter writer_;
  std::map<std::string, std::function<at::Tensor()>> tensors_;
};

}  // namespace

void save_gguf(const Model& model, const std::filesystem::path& file, GgmlType type) {
  if (!model.transformer.adapter().empty()) throw std::logic_error("save_gguf: merge the adapter first");
  const at::NoGradGuard no_grad;
  Writing(model, type).run(file);
}

}  // namespace kullback
