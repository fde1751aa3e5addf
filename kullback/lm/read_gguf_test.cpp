// A tiny model written as llama.cpp's files are, read back; and what is said of files that describe something else.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include <unistd.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/io/gguf_write.h"
#include "kullback/lm/model.h"
#include "kullback/lm/naive_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;

// What a file holds, open to change before it is written.
struct Contents {
  std::map<std::string, std::string> texts;
  std::map<std::string, uint32_t> counts;
  std::map<std::string, float> numbers;
  std::vector<std::string> tokens;
  std::map<std::string, at::Tensor> tensors;  // float32
};

// The rows of a head in the order that a rotation of neighbouring pairs wants: 0, d/2, 1, d/2 + 1, ...
at::Tensor interleaved(const at::Tensor& rows, int64_t head_size) {
  std::vector<at::Tensor> order;
  for (int64_t head = 0; head < rows.size(0); head += head_size) {
    for (int64_t j = 0; j < head_size / 2; ++j) {
      order.push_back(rows[head + j]);
      order.push_back(rows[head + j + head_size / 2]);
    }
  }
  return at::stack(order);
}

Contents contents_of(const Transformer& model) {
  const Config& config = model.config;
  Contents contents;
  contents.texts = {
      {"general.architecture", "llama"}, {"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "smollm"}};
  contents.counts = {{"llama.context_length", 64},
                     {"llama.embedding_length", static_cast<uint32_t>(config.hidden_size)},
                     {"llama.block_count", static_cast<uint32_t>(config.layers)},
                     {"llama.feed_forward_length", static_cast<uint32_t>(config.mlp_size)},
                     {"llama.attention.head_count", static_cast<uint32_t>(config.heads)},
                     {"llama.attention.head_count_kv", static_cast<uint32_t>(config.key_value_heads)},
                     {"llama.attention.key_length", static_cast<uint32_t>(config.head_size)},
                     {"llama.rope.dimension_count", static_cast<uint32_t>(config.head_size)},
                     {"tokenizer.ggml.bos_token_id", 1},
                     {"tokenizer.ggml.eos_token_id", 2},
                     {"tokenizer.ggml.eot_token_id", 0}};
  contents.numbers = {{"llama.rope.freq_base", static_cast<float>(config.rope.theta)},
                      {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_epsilon)}};
  contents.tokens = {"<pad>", "<s>", "</s>", "a", "b", "ab"};
  contents.tensors = {{"token_embd.weight", model.embedding}, {"output_norm.weight", model.final_norm.weight}};
  if (!config.tied_head) contents.tensors["output.weight"] = model.head;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, const Linear& linear, bool turned = false) {
      const auto rows = [&](const at::Tensor& tensor) {
        return turned ? interleaved(tensor, config.head_size) : tensor;
      };
      contents.tensors[prefix + name + ".weight"] = rows(linear.weight);
      if (linear.bias.defined()) contents.tensors[prefix + name + ".bias"] = rows(linear.bias);
    };
    add("attn_q", layer.query, true);
    add("attn_k", layer.key, true);
    add("attn_v", layer.value);
    add("attn_output", layer.output);
    add("ffn_gate", layer.gate);
    add("ffn_up", layer.up);
    add("ffn_down", layer.down);
    contents.tensors[prefix + "attn_norm.weight"] = layer.attention_norm.weight;
    contents.tensors[prefix + "ffn_norm.weight"] = layer.mlp_norm.weight;
  }
  return contents;
}

void write(const Contents& contents, const std::filesystem::path& path) {
  GgufWriter writer;
  for (const auto& [key, value] : contents.texts) writer.add(key, std::string_view(value));
  for (const auto& [key, value] : contents.counts) writer.add(key, value);
  for (const auto& [key, value] : contents.numbers) writer.add(key, value);
  writer.add("tokenizer.ggml.tokens", contents.tokens);
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  std::vector<int32_t> types(contents.tokens.size(), 1);
  for (size_t i = 0; i < 3 && i < types.size(); ++i) types[i] = 3;
  writer.add("tokenizer.ggml.token_type", types);
  for (const auto& [name, tensor] : contents.tensors) writer.add_tensor(name, tensor.sizes().vec(), GgmlType::f32);
  at::Tensor held;
  writer.write(path, [&](const GgufTensor& tensor) {
    held = contents.tensors.at(tensor.name).to(at::kFloat).contiguous();
    return std::span(static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes());
  });
}

class ReadGguf : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("kullback_read_gguf_" + std::to_string(getpid()) + ".gguf");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Model load(const Contents& contents, at::ScalarType dtype = at::kFloat) {
    write(contents, path_);
    return load_model(path_.string(), dtype);
  }
  std::string message(const std::function<void(Contents&)>& change) {
    Contents contents = contents_of(model_);
    change(contents);
    try {
      load(contents);
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  }

  std::filesystem::path path_;
  Transformer model_ = random_transformer(test::tiny_config(), 4, 0.3);
};

at::Tensor logits(const Transformer& model) {
  const at::NoGradGuard no_grad;
  return model.logits(model.hidden(ragged({test::random_ids(37, 9, 1)})));
}

TEST_F(ReadGguf, AModelIsWhatWasWritten) {
  for (const bool tied : {false, true}) {
    Config config = test::tiny_config();
    config.tied_head = tied;
    config.attention_bias = config.mlp_bias = tied;
    const Transformer model = random_transformer(config, 4, 0.3);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const Model read = load(contents_of(model), type);
      EXPECT_EQ(read.transformer.dtype(), type);
      const std::vector<NamedTensor> ours = read.transformer.parameters(), theirs = model.parameters();
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i)
        EXPECT_TRUE(at::equal(ours[i].tensor.to(at::kFloat), theirs[i].tensor)) << theirs[i].name;
      EXPECT_LT((logits(read.transformer) - logits(model)).abs().max().item<double>(), 1e-4);
      EXPECT_EQ(read.text().encode("aba</s>"), (std::vector<int32_t>{5, 3, 2}));
      EXPECT_EQ(read.generation.stop_ids, (std::vector<int32_t>{2, 0}));
      EXPECT_EQ(read.config().bos, 1);
    }
  }
}

TEST_F(ReadGguf, Llama3sRotationsAreRecognised) {
  Config config = test::tiny_config();
  config.head_size = 64;
  config.rope = {.theta = 500000, .scaling = Rope::Scaling::llama3, .factor = 32, .original_positions = 8192};
  const Transformer model = random_transformer(config, 4, 0.3);
  const std::vector<double> plain = rope_frequencies({.theta = 500000}, 64), scaled = rope_frequencies(config.rope, 64);
  at::Tensor divisors = at::empty({32});
  for (int64_t j = 0; j < 32; ++j) divisors[j] = plain[static_cast<size_t>(j)] / scaled[static_cast<size_t>(j)];
  Contents contents = contents_of(model);
  contents.tensors["rope_freqs.weight"] = divisors;
  const Rope found = load(contents).config().rope;
  EXPECT_EQ(found.scaling, Rope::Scaling::llama3);
  EXPECT_EQ(found.factor, 32);
  EXPECT_EQ(found.original_positions, 8192);

  contents.tensors["rope_freqs.weight"] = divisors * 1.5;
  EXPECT_THROW(load(contents), Error);
}

TEST_F(ReadGguf, RotationsStretchedEvenlyAreRead) {
  Contents contents = contents_of(model_);
  contents.texts["llama.rope.scaling.type"] = "linear";
  contents.numbers["llama.rope.scaling.factor"] = 4;
  const Rope rope = load(contents).config().rope;
  EXPECT_EQ(rope.scaling, Rope::Scaling::linear);
  EXPECT_EQ(rope.factor, 4);
}

TEST_F(ReadGguf, SaysWhatAFileDescribesInstead) {
  EXPECT_THAT(message([](Contents& c) { c.texts["general.architecture"] = "mamba"; }),
              HasSubstr("architecture 'mamba' is not supported"));
  EXPECT_THAT(message([](Contents& c) {
                c.tensors["blk.0.ffn_gate_exps.weight"] = at::ones({2, 2});
              }),
              HasSubstr("'blk.0.ffn_gate_exps.weight' is not part"));
  EXPECT_THAT(message([](Contents& c) { c.texts["tokenizer.ggml.model"] = "bert"; }),
              HasSubstr("tokenizer 'bert' is not supported"));
  EXPECT_THAT(message([](Contents& c) { c.texts["tokenizer.ggml.pre"] = "nonsense"; }), HasSubstr("nonsense"));
  EXPECT_THAT(message([](Contents& c) { c.texts["llama.rope.scaling.type"] = "spiral"; }), HasSubstr("'spiral'"));
  EXPECT_THAT(message([](Contents& c) { c.counts["llama.rope.dimension_count"] = 6; }),
              HasSubstr("llama.rope.dimension_count is 6"));
  EXPECT_THAT(message([](Contents& c) { c.tokens.resize(40, "x"); }), HasSubstr("only 37 rows"));
}

TEST_F(ReadGguf, NamesWhatIsDamaged) {
  EXPECT_THAT(message([](Contents& c) { c.tensors.erase("blk.1.ffn_up.weight"); }), HasSubstr("blk.1.ffn_up.weight"));
  EXPECT_THAT(message([](Contents& c) {
                c.tensors["blk.1.ffn_up.weight"] = at::ones({14, 9});
              }),
              HasSubstr("'blk.1.ffn_up.weight' has shape [14, 9] where the configuration asks for [14, 10]"));
  EXPECT_THAT(message([](Contents& c) {
                c.tensors["blk.1.ffn_up.weight"] = at::full({14, 10}, std::nan(""));
              }),
              HasSubstr("'blk.1.ffn_up.weight' holds NaN or infinity"));
  EXPECT_THAT(message([](Contents& c) {
                c.tensors["blk.0.attn_q.weight"] = at::full({24, 10}, HUGE_VAL);
              }),
              HasSubstr("'blk.0.attn_q.weight' holds NaN or infinity"));
  EXPECT_THAT(message([](Contents& c) { c.counts.erase("llama.block_count"); }), HasSubstr("llama.block_count"));
  EXPECT_THAT(message([](Contents& c) { c.counts["llama.block_count"] = 4000000000u; }),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(message([](Contents& c) { c.counts["llama.attention.head_count"] = 0; }), HasSubstr("head_count is 0"));
  EXPECT_THAT(message([](Contents& c) { c.counts["llama.feed_forward_length"] = 16000000; }),
              HasSubstr("ffn_gate"));  // nothing of that size is allocated
  EXPECT_THAT(message([](Contents& c) { c.counts["tokenizer.ggml.bos_token_id"] = 36; }), HasSubstr("36"));
}

}  // namespace
}  // namespace kullback
