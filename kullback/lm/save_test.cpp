// Models and adapters written and read back, and what is said of files that are damaged or not supported.
#include "kullback/lm/save.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/base/json.h"
#include "kullback/io/files.h"
#include "kullback/io/safetensors.h"
#include "kullback/lm/naive_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;

class Saving : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / (std::string("kullback_") + info->test_suite_name() + "_" +
                                                        info->name() + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string message(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  }
  std::string load_message(const std::filesystem::path& path) {
    return message([&] { load_model(path.string()); });
  }

  Json read(const std::filesystem::path& path) { return Json::parse(read_text(path)); }
  void write(const std::filesystem::path& path, const Json& json) { std::ofstream(path) << json.dump(); }

  std::filesystem::path folder_;
};

at::Tensor logits(const Transformer& model) {
  const at::NoGradGuard no_grad;
  return model.logits(model.hidden(ragged({test::random_ids(37, 9, 1), test::random_ids(37, 3, 2)})));
}

// Every switch away from its default.
Config unusual_config() {
  Config config = test::tiny_config();
  config.attention_bias = config.mlp_bias = true;
  config.bos = 1;
  config.eos = 2;
  config.rope.scaling = Rope::Scaling::llama3;
  config.rope.factor = 4;
  config.rope.original_positions = 16;
  return config;
}

Tokenizer small_tokenizer() {
  BpeSpec spec;
  spec.name = "test";
  spec.tokens = {"<pad>", "<s>", "</s>"};
  for (const char* token : {"a", "b", "c", "ab", "abc", "Ġ", "Ġa", "1", "2"}) spec.tokens.push_back(token);
  spec.merges = {"a b", "ab c", "Ġ a"};
  spec.types = {3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  spec.pre_tokenizer = "smollm";
  spec.special = {1, 2, 0, std::nullopt};
  spec.add_bos = true;
  return Tokenizer(spec);
}

Model small_model() {
  Model model;
  model.name = "test";
  model.transformer = test::tiny_transformer(unusual_config());
  model.tokenizer = small_tokenizer();
  model.generation = {.stop_ids = {2, 0}, .temperature = 0.25, .top_p = 0.5, .top_k = 7};
  set_chat_template(model, ChatTemplate::named("chatml").jinja());
  return model;
}

TEST_F(Saving, AModelComesBackAsItWas) {
  const Model model = small_model();
  save_model(model, folder_ / "model");
  const Model back = load_model((folder_ / "model").string(), at::kDouble);
  EXPECT_TRUE(at::equal(logits(back.transformer), logits(model.transformer)));
  EXPECT_EQ(config_to_json(back.config()), config_to_json(model.config()));
  EXPECT_EQ(back.generation.stop_ids, model.generation.stop_ids);
  EXPECT_EQ(back.generation.temperature, 0.25);
  EXPECT_EQ(back.generation.top_p, 0.5);
  EXPECT_EQ(back.generation.top_k, 7);
  EXPECT_EQ(back.chat_template().name(), "chatml");
  EXPECT_EQ(back.jinja, model.jinja);
  const std::string text = "abc ab 12 a</s>cab";
  EXPECT_EQ(back.text().encode(text), model.text().encode(text));
  EXPECT_EQ(back.text().add_special({3}), model.text().add_special({3}));
  EXPECT_EQ(back.text().decode(back.text().encode(text)), text);
  EXPECT_EQ(back.text().bos(), 1);
  EXPECT_EQ(back.text().eos(), 2);
  EXPECT_EQ(back.text().pad(), 0);
  EXPECT_FALSE(back.text().unknown().has_value());
}

// Families that keep several layers in one tensor: PEFT sees one adapter there, of the sum of the ranks.
TEST_F(Saving, AdaptersOfFusedLayersComeBackAsTheSameChange) {
  for (const char* name : {"phi3", "gpt2", "gpt-neox"}) {
    const std::string base = std::string(KULLBACK_FIXTURES "/architectures/") + name;
    for (const std::vector<std::string>& targets : {std::vector<std::string>{"all-linear"}, {"k_proj", "down_proj"}}) {
      Model model = load_model(base, at::kDouble);
      const at::Tensor before = logits(model.transformer);
      test::add_random_lora(model.transformer, 2, targets);
      const at::Tensor with = logits(model.transformer);
      EXPECT_GT((with - before).abs().max().item<double>(), 0.01) << name;
      const std::filesystem::path folder = folder_ / (name + targets[0]);
      save_adapter(model.transformer, folder, base);
      Model back = load_model(base, at::kDouble);
      load_adapter(back.transformer, folder);
      EXPECT_LT((logits(back.transformer) - with).abs().max().item<double>(), 1e-9) << name;
      merge_lora(back.transformer);
      EXPECT_LT((logits(back.transformer) - with).abs().max().item<double>(), 1e-9) << name;
    }
  }
}

TEST_F(Saving, AFloat32ModelWithATiedHeadComesBackBitForBit) {
  Config config = test::tiny_config();
  config.tied_head = true;
  Model model;
  model.transformer = random_transformer(config, 3, 0.3);
  save_model(model, folder_ / "model");
  EXPECT_EQ(SafetensorsFile::open(folder_ / "model/model.safetensors").find("lm_head.weight"), nullptr);
  const Model back = load_model((folder_ / "model").string());
  EXPECT_TRUE(at::equal(logits(back.transformer), logits(model.transformer)));
  EXPECT_TRUE(back.transformer.head.is_same(back.transformer.embedding));
  EXPECT_THAT(message([&] { back.text(); }), HasSubstr("no tokenizer"));
  EXPECT_THAT(message([&] { back.chat_template(); }), HasSubstr("no chat template"));
}

TEST_F(Saving, AnAdapterComesBackAsItWas) {
  Transformer model = test::tiny_transformer(unusual_config());
  const Transformer base = model;
  test::add_random_lora(model, 3, {"q_proj", "up_proj"});
  save_adapter(model, folder_ / "adapter", "some/base");
  const Json config = read(folder_ / "adapter/adapter_config.json");
  EXPECT_EQ(config["base_model_name_or_path"], "some/base");
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 4.5);
  EXPECT_EQ(config["target_modules"], (Json{"q_proj", "up_proj"}));

  Transformer back = base;
  load_adapter(back, folder_ / "adapter");
  EXPECT_TRUE(at::equal(logits(back), logits(model)));
  EXPECT_FALSE(at::equal(logits(back), logits(base)));
  EXPECT_EQ(back.trainable().size(), 2u * 2 * 2);
  EXPECT_EQ(back.adapter()[0].name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");

  merge_lora(back);
  EXPECT_LT((logits(back) - logits(model)).abs().max().item<double>(), 1e-12);
}

TEST_F(Saving, NothingIsWrittenOverOrLeftBehind) {
  Model model = small_model();
  std::ofstream(folder_ / "mine") << "precious";
  EXPECT_THAT(message([&] { save_model(model, folder_); }), HasSubstr(folder_.string()));
  EXPECT_THAT(message([&] { save_adapter(model.transformer, folder_ / "adapter", ""); }), HasSubstr("no adapter"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Saving, DamagedFoldersAreNamed) {
  const std::filesystem::path good = folder_ / "good", bad = folder_ / "bad";
  save_model(small_model(), good);
  const auto fresh = [&] {
    std::filesystem::remove_all(bad);
    std::filesystem::copy(good, bad);
  };
  const auto with_config = [&](const char* key, const Json& value) {
    fresh();
    Json config = read(good / "config.json");
    config[key] = value;
    write(bad / "config.json", config);
    return load_message(bad);
  };
  EXPECT_THAT(load_message(folder_ / "nowhere"), HasSubstr("nowhere"));
  EXPECT_THAT(load_message(folder_), HasSubstr("config.json"));
  EXPECT_THAT(with_config("model_type", "mamba"), HasSubstr("architecture 'mamba' is not supported"));
  EXPECT_THAT(with_config("hidden_act", "softplus"), HasSubstr("hidden_act 'softplus'"));
  EXPECT_THAT(with_config("hidden_size", "ten"), HasSubstr("hidden_size"));
  EXPECT_THAT(with_config("hidden_size", 0), HasSubstr("hidden_size is 0"));
  EXPECT_THAT(with_config("hidden_size", 12), HasSubstr("shape [37, 10] where the configuration asks for [37, 12]"));
  EXPECT_THAT(with_config("num_hidden_layers", 3), HasSubstr("no tensor 'model.layers.2.input_layernorm.weight'"));
  EXPECT_THAT(with_config("num_hidden_layers", 1), HasSubstr("'model.layers.1."));
  EXPECT_THAT(with_config("num_hidden_layers", 1000000000), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with_config("intermediate_size", 16777216), HasSubstr("mlp.gate_proj"));
  EXPECT_THAT(with_config("num_key_value_heads", 4), HasSubstr("cannot share 4"));
  EXPECT_THAT(with_config("head_dim", 5), HasSubstr("head_dim is 5"));
  EXPECT_THAT(with_config("rms_norm_eps", -1), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(with_config("rope_scaling", {{"rope_type", "spiral"}}), HasSubstr("'spiral'"));

  fresh();
  std::ofstream(bad / "config.json") << "{\"model_type\": ";
  EXPECT_THAT(load_message(bad), HasSubstr("malformed JSON"));
  fresh();
  std::filesystem::remove(bad / "model.safetensors");
  EXPECT_THAT(load_message(bad), HasSubstr("neither model.safetensors"));
  fresh();
  write(bad / "model.safetensors.index.json", {{"weight_map", {{"model.norm.weight", "../good/model.safetensors"}}}});
  EXPECT_THAT(load_message(bad), HasSubstr("not a file of the same folder"));
}

TEST_F(Saving, WeightsThatAreNoNumbersAreNamed) {
  for (const double value : {std::nan(""), HUGE_VAL}) {
    Model model = small_model();
    model.transformer.layers[1].up.weight[3][4] = value;
    const std::filesystem::path folder = folder_ / (std::isnan(value) ? "nan" : "infinite");
    save_model(model, folder);
    EXPECT_THAT(load_message(folder), HasSubstr("'model.layers.1.mlp.up_proj.weight' holds NaN or infinity"));
  }
}

TEST_F(Saving, AdaptersThatDoNotFitAreNamed) {
  Transformer model = test::tiny_transformer(test::tiny_config());
  const Transformer base = model;
  test::add_random_lora(model, 3);
  const std::filesystem::path good = folder_ / "good", bad = folder_ / "bad";
  save_adapter(model, good, "");
  const auto with = [&](const char* key, const Json& value, Transformer onto) {
    std::filesystem::remove_all(bad);
    std::filesystem::copy(good, bad);
    Json config = read(good / "adapter_config.json");
    config[key] = value;
    write(bad / "adapter_config.json", config);
    return message([&] { load_adapter(onto, bad); });
  };
  EXPECT_THAT(with("peft_type", "IA3", base), HasSubstr("peft_type"));
  EXPECT_THAT(with("use_dora", true, base), HasSubstr("use_dora is true"));
  EXPECT_THAT(with("r", 4, base), HasSubstr("lora_A.weight' has shape [3, 10]"));
  EXPECT_THAT(with("r", 0, base), HasSubstr("r is 0"));
  EXPECT_THAT(with("lora_alpha", "much", base), HasSubstr("lora_alpha"));
  EXPECT_THAT(with("bias", "all", base), HasSubstr("bias is \"all\""));
  Config shallow = test::tiny_config();
  shallow.layers = 1;
  EXPECT_THAT(with("r", 3, test::tiny_transformer(shallow)), HasSubstr("layers.1."));
  EXPECT_THAT(message([&] {
                Transformer onto = base;
                load_adapter(onto, folder_);
              }),
              HasSubstr("adapter_config.json"));
}

TEST_F(Saving, TokenizersThatAreNotUnderstoodAreNamed) {
  const std::filesystem::path good = folder_ / "good", bad = folder_ / "bad";
  save_model(small_model(), good);
  const auto with = [&](const char* pointer, const Json& value) {
    std::filesystem::remove_all(bad);
    std::filesystem::copy(good, bad);
    Json json = read(good / "tokenizer.json");
    json[Json::json_pointer(pointer)] = value;
    write(bad / "tokenizer.json", json);
    return load_message(bad);
  };
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("ByteLevel is only read with a BPE model"));
  EXPECT_THAT(with("/model/vocab/a", -1), HasSubstr("model.vocab[\"a\"] is not a whole number"));
  EXPECT_THAT(with("/model/vocab/a", 4), HasSubstr("have the same id 4"));
  EXPECT_THAT(with("/model/vocab/a", 36 + 1), HasSubstr("only 37 rows"));
  EXPECT_THAT(with("/model/merges/0", Json{"a", "zz"}), HasSubstr("zz"));
  EXPECT_THAT(with("/normalizer", {{"type", "Rot13"}}), HasSubstr("normalizer is of type \"Rot13\""));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Words"}}), HasSubstr("pre_tokenizer is of type \"Words\""));
  EXPECT_THAT(with("/model", "nothing"), HasSubstr("tokenizer.json"));
}

TEST(Lora, SaysWhichTargetIsUnknown) {
  Transformer model = test::tiny_transformer(test::tiny_config());
  try {
    add_lora(model, {.rank = 2, .alpha = 4, .targets = {"q_prj"}}, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("q_prj"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"q_proj\""));
  }
  EXPECT_THROW(add_lora(model, {.rank = 0}, 1), Error);
}

TEST(Lora, BeginsAsTheBaseAndFromItsSeed) {
  const Transformer base = test::tiny_transformer(test::tiny_config());
  Transformer one = base, same = base, other = base, fewer = base;
  add_lora(one, {.rank = 4}, 7);
  add_lora(same, {.rank = 4}, 7);
  add_lora(other, {.rank = 4}, 8);
  add_lora(fewer, {.rank = 4, .alpha = 32, .targets = {"down_proj"}}, 7);
  EXPECT_TRUE(at::equal(logits(one), logits(base)));
  const at::Tensor a = one.layers[1].down.adapter->a;
  EXPECT_TRUE(at::equal(a, same.layers[1].down.adapter->a));
  EXPECT_TRUE(at::equal(a, fewer.layers[1].down.adapter->a));
  EXPECT_FALSE(at::equal(a, other.layers[1].down.adapter->a));
  EXPECT_FALSE(at::equal(a, one.layers[0].down.adapter->a));
  const double bound = 1 / std::sqrt(14.0);  // the layer's inputs
  EXPECT_LE(a.abs().max().item<double>(), bound);
  EXPECT_GT(a.abs().max().item<double>(), 0.8 * bound);
  EXPECT_EQ(one.layers[1].down.adapter->scale, 8);
  EXPECT_EQ(lora_options(one).targets.size(), 7u);
  EXPECT_EQ(lora_options(fewer).targets, std::vector<std::string>{"down_proj"});
  remove_lora(one);
  EXPECT_TRUE(one.adapter().empty());
}

}  // namespace
}  // namespace kullback
