// Matrices that are kept short: their numbers, their products, and models of them.
#include "kullback/lm/weights.h"

#include <filesystem>

#include <unistd.h>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/divergence/head.h"
#include "kullback/io/ggml_type.h"
#include "kullback/lm/generate.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/model.h"
#include "kullback/lm/naive_test.h"
#include "kullback/lm/save.h"
#include "kullback/lm/save_gguf.h"

namespace kullback {
namespace {

using test::random_ids;
using test::tiny_config;
using test::tiny_transformer;

at::Tensor random_matrix(int64_t rows, int64_t length, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({rows, length}) * at::exp(at::randn({rows, 1}));
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(KeptWeights, AreTheNumbersOfTheirType) {
  const at::Tensor matrix = random_matrix(7, 96, 1);
  EXPECT_TRUE(kept_as(matrix, WeightType::float32).is_same(matrix));
  const at::Tensor bfloat16 = kept_as(matrix, WeightType::bfloat16), int8 = kept_as(matrix, WeightType::int8);
  EXPECT_TRUE(at::equal(in_full(bfloat16), matrix.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(int8.nbytes(), static_cast<size_t>(matrix.numel() / 32 * 34));
  EXPECT_EQ(kept_bytes(matrix, WeightType::int8), static_cast<int64_t>(int8.nbytes()));
  EXPECT_EQ(kept_bytes(matrix, WeightType::bfloat16), static_cast<int64_t>(bfloat16.nbytes()));
  at::Tensor expected = at::empty_like(matrix);
  dequantize(GgmlType::q8_0, {static_cast<const std::byte*>(int8.const_data_ptr()), int8.nbytes()},
             {expected.mutable_data_ptr<float>(), static_cast<size_t>(expected.numel())});
  EXPECT_TRUE(at::equal(in_full(int8), expected));
  // Half a step of the largest of each 32, and what rounding the scale to float16 adds.
  const at::Tensor step = matrix.view({-1, 32}).abs().amax(1, true) / 127;
  EXPECT_TRUE(((in_full(int8) - matrix).view({-1, 32}).abs() <= 0.57 * step).all().item<bool>());
  EXPECT_TRUE(at::equal(kept_as(in_full(int8), WeightType::int8), int8));                      // again: nothing is lost
  EXPECT_EQ(kept_as(random_matrix(3, 40, 2), WeightType::int8).scalar_type(), at::kBFloat16);  // no whole blocks
  for (const at::Tensor& kept : {matrix, bfloat16, int8}) {
    EXPECT_EQ(row_length(kept), 96);
    const at::Tensor ids = at::tensor({5, 0, 5}, at::kLong);
    EXPECT_TRUE(at::equal(rows_in_full(kept, ids), in_full(kept).index_select(0, ids)));
  }
  EXPECT_THROW(kept_as(matrix * 1e6, WeightType::int8), Error);
}

class KeptProduct : public testing::TestWithParam<WeightType> {};

TEST_P(KeptProduct, IsThatOfTheNumbersKept) {
  for (const int64_t length : {1, 3, 16, 31, 32, 33, 64, 75, 160, 576}) {
    for (const int64_t rows : {1, 4, 6, 131}) {
      const at::Tensor kept = kept_as(random_matrix(rows, length, 7), GetParam());
      const at::Tensor full = in_full(kept).to(at::kDouble);
      for (const int64_t count : {1, 2, 3, 4, 5, 9, 16, 32, 33, 50}) {
        const at::Tensor x = random_matrix(count, length, 3), y = kept_product(x, kept);
        const at::Tensor expected = at::mm(x.to(at::kDouble), full.t());
        const at::Tensor size = at::mm(x.to(at::kDouble).abs(), full.abs().t());  // what rounding goes by
        EXPECT_TRUE(((y - expected).abs() <= 1e-5 * size).all().item<bool>()) << length << " " << rows << " " << count;
      }
    }
  }
}

TEST_P(KeptProduct, OfARowDoesNotDependOnTheRowsBesideIt) {
  const at::Tensor kept = kept_as(random_matrix(70, 96, 7), GetParam()), x = random_matrix(few_rows, 96, 5);
  const at::Tensor all = kept_product(x, kept);
  for (const int64_t count : {1, 2, 7}) {
    for (int64_t first = 0; first + count <= few_rows; first += 5)
      EXPECT_TRUE(at::equal(kept_product(x.narrow(0, first, count), kept), all.narrow(0, first, count)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KeptProduct,
                         testing::Values(WeightType::float32, WeightType::bfloat16, WeightType::int8),
                         [](const auto& instance) {
                           return weight_types()[static_cast<size_t>(instance.param)].first;
                         });

// Sizes of whole blocks, so that int8 is what it says.
Config blocks_config() {
  Config config = tiny_config();
  config.hidden_size = config.heads * 32;
  config.head_size = 32;
  config.mlp_size = 96;
  config.max_positions = 256;
  return config;
}

at::Tensor logits(const Transformer& model, const std::vector<int32_t>& ids) {
  const at::NoGradGuard no_grad;
  return model.logits(model.hidden(ragged({ids})));
}

// The same model whose matrices are in float32 what they are kept as.
Transformer with_full_matrices(Transformer model) {
  for_each_matrix(model, [](at::Tensor& matrix) { matrix = in_full(matrix); });
  return model;
}

TEST(KeptWeights, OfAModelGiveWhatItsNumbersGive) {
  for (const bool tied : {false, true}) {
    Config config = blocks_config();
    config.tied_head = tied;
    const Transformer model = tiny_transformer(config).clone(at::kFloat);
    const std::vector<int32_t> ids = random_ids(config.vocabulary_size, 40, 4);
    for (const WeightType type : {WeightType::bfloat16, WeightType::int8}) {
      Transformer kept = model;
      keep_weights(kept, type);
      EXPECT_EQ(kept.dtype(), at::kFloat);
      EXPECT_EQ(kept.parameter_count(), model.parameter_count());
      EXPECT_EQ(tied, kept.head.is_same(kept.embedding));
      const Transformer numbers = with_full_matrices(kept);
      EXPECT_LT(largest_difference(logits(kept, ids), logits(numbers, ids)), 2e-4);
      EXPECT_GT(largest_difference(logits(kept, ids), logits(model, ids)), 1e-4);
      EXPECT_TRUE(at::equal(kept.head_rows(logits(model, ids)).weight, numbers.head));
      // Step by step, alone and together.
      GenerationOptions options;
      options.max_new_tokens = 12;
      options.seed = 3;
      const std::vector<std::vector<int32_t>> prompts = {ids, random_ids(config.vocabulary_size, 3, 5)};
      const std::vector<Generated> together = generate(kept, prompts, options);
      EXPECT_EQ(generate(numbers, prompts, options)[0].ids, together[0].ids);
      EXPECT_EQ(generate(kept, {prompts[0]}, options)[0].ids, together[0].ids);
    }
  }
}

TEST(KeptWeights, TakeAdaptersAndNoGradients) {
  const Config config = blocks_config();
  Transformer model = tiny_transformer(config).clone(at::kFloat);
  test::add_random_lora(model, 2);
  Transformer kept = model;
  keep_weights(kept, WeightType::int8);
  const std::vector<int32_t> ids = random_ids(config.vocabulary_size, 9, 4);
  EXPECT_LT(largest_difference(logits(kept, ids), logits(with_full_matrices(kept), ids)), 2e-4);
  EXPECT_GT(largest_difference(logits(kept, ids), logits(model, ids)), 1e-4);
  EXPECT_THROW(kept.hidden(ragged({ids})), std::logic_error);
}

TEST(KeptWeights, AreReadAsTheyAreKept) {
  Model model;
  model.name = "kept";
  model.transformer = tiny_transformer(blocks_config()).clone(at::kFloat);
  const auto folder = std::filesystem::temp_directory_path() / ("kullback_kept_" + std::to_string(getpid()));
  const std::string file = folder.string() + ".gguf";
  save_model(model, folder);
  for (const auto& [name, type] : weight_types()) {
    Transformer expected = model.transformer;
    keep_weights(expected, type);
    const Transformer read = load_model(folder.string(), at::kFloat, type).transformer;
    EXPECT_TRUE(at::equal(read.embedding, expected.embedding)) << name;
    EXPECT_TRUE(at::equal(read.head, expected.head)) << name;
    EXPECT_TRUE(at::equal(read.layers[1].down.weight, expected.layers[1].down.weight)) << name;
    EXPECT_TRUE(at::equal(read.layers[0].query.weight, expected.layers[0].query.weight)) << name;
  }
  // The blocks of a Q8_0 file are those of int8: nothing is rounded twice.
  save_gguf(model, file, GgmlType::q8_0);
  const Transformer whole = load_model(file).transformer,
                    kept = load_model(file, at::kFloat, WeightType::int8).transformer;
  EXPECT_TRUE(at::equal(in_full(kept.layers[0].key.weight), whole.layers[0].key.weight));
  EXPECT_TRUE(at::equal(in_full(kept.embedding), whole.embedding));
  EXPECT_TRUE(at::equal(in_full(kept.head), whole.head));
  std::filesystem::remove_all(folder);
  std::filesystem::remove(file);
}

// Steps of generation in float32 against the definitions of the papers in float64: soft-caps, windows, groups of heads.
TEST(Step, OfEveryFamilyIsTheModelOfThePapers) {
  for (const auto& [head_size, group] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {16, 2}, {24, 3}, {64, 4}, {80, 5}, {128, 7}}) {
    for (const bool other : {false, true}) {
      Config config = tiny_config();
      config.head_size = head_size;
      config.heads = group * config.key_value_heads;
      if (other) {
        config.key_value_heads = config.heads;
        config.attention_softcap = 1.5;
        config.window = 5;
        config.sliding = std::vector<bool>(static_cast<size_t>(config.layers), true);
        config.sliding[0] = false;
      }
      const Transformer exact = tiny_transformer(config), model = exact.clone(at::kFloat);
      const std::vector<std::vector<int32_t>> texts = {random_ids(config.vocabulary_size, 20, 4),
                                                       random_ids(config.vocabulary_size, 13, 5)};
      std::vector<KvCache> caches(2, KvCache(config.layers));
      const c10::InferenceMode inference;  // as generation does
      for (size_t t = 0; t < 13; ++t) {
        Ragged batch = ragged({{texts[0][t]}, {texts[1][t]}});
        batch.caches = {&caches[0], &caches[1]};
        const at::Tensor rows = model.logits(model.hidden(batch));
        for (size_t i = 0; i < 2; ++i) {
          const std::vector<int32_t> seen(texts[i].begin(), texts[i].begin() + static_cast<long>(t) + 1);
          const auto expected = test::naive_logits(exact, seen, AdapterUse::on).back();
          EXPECT_LT(largest_difference(rows[static_cast<int64_t>(i)], at::tensor(expected, at::kDouble)), 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kullback
