#include "kullback/lm/transformer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/lora.h"
#include "kullback/lm/naive_test.h"
#include "kullback/lm/score.h"

namespace kullback {
namespace {

using test::add_random_lora;
using test::naive_logits;
using test::random_ids;
using test::tiny_config;
using test::tiny_transformer;

at::Tensor logits(const Transformer& model, const Ragged& batch, AdapterUse use = AdapterUse::on) {
  const at::NoGradGuard no_grad;
  return model.logits(model.hidden(batch, use));
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

double largest_difference(const at::Tensor& ours, const std::vector<std::vector<double>>& naive) {
  double largest = 0;
  for (size_t t = 0; t < naive.size(); ++t) {
    largest = std::max(largest, largest_difference(ours[static_cast<int64_t>(t)], at::tensor(naive[t], at::kDouble)));
  }
  return largest;
}

// The switches of other families than Llama, each on in one of these at least.
std::vector<Config> families() {
  Config gemma = tiny_config();  // Gemma 2 and 3 in one
  gemma.model_type = "gemma3_text";
  gemma.norm = NormKind::zero_centred_rms;
  gemma.norm_after = gemma.scaled_embedding = true;
  gemma.query_key_norm = QueryKeyNorm::each_head;
  gemma.activation = Activation::gelu_tanh;
  gemma.attention_softcap = 1.5;
  gemma.head_softcap = 2.5;
  gemma.query_scale = 7;
  gemma.window = 3;
  gemma.sliding = {true, false};
  gemma.local_rope = Rope{.theta = 30};
  Config olmo = tiny_config();
  olmo.model_type = "olmo2";
  olmo.norm_before = false;
  olmo.norm_after = true;
  olmo.query_key_norm = QueryKeyNorm::whole;
  olmo.query_key_value_bias = true;
  Config smollm3 = tiny_config();
  smollm3.model_type = "smollm3";
  smollm3.unrotated = {true, false};
  smollm3.window = 4;
  smollm3.sliding = {false, true};
  Config gpt2 = tiny_config();
  gpt2.model_type = "gpt2";
  gpt2.norm = NormKind::layer;
  gpt2.gated = false;
  gpt2.activation = Activation::relu;
  gpt2.learned_positions = gpt2.attention_bias = gpt2.mlp_bias = true;
  Config neox = gpt2;
  neox.model_type = "gpt_neox";
  neox.key_value_heads = neox.heads;
  neox.learned_positions = false;
  neox.parallel_residual = true;
  neox.activation = Activation::gelu;
  neox.rope.size = 2;
  return {gemma, olmo, smollm3, gpt2, neox};
}

std::vector<Config> variants() {
  std::vector<Config> all(4, tiny_config());
  all[1].tied_head = true;
  all[1].key_value_heads = 6;  // as many as query heads
  all[2].attention_bias = all[2].mlp_bias = true;
  all[2].key_value_heads = 1;
  all[3].heads = all[3].key_value_heads = 1;
  all[3].head_size = 2;
  all[3].layers = 1;
  for (const Config& config : families()) all.push_back(config);
  return all;
}

// The mean negative log-probability of the next tokens, by logits held whole.
at::Tensor loss_of(const Transformer& model, const Ragged& batch) {
  const at::Tensor rows = at::log_softmax(model.logits(model.hidden(batch)), -1);
  const at::Tensor labels = next_tokens(batch), counted = labels.ge(0);
  const at::Tensor logps = rows.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
  return -logps.masked_select(counted).mean();
}

// Compares d loss / d tensor with central differences at a few entries of every tensor.
void check_gradients(Transformer& model, const Ragged& batch) {
  const std::vector<NamedTensor> trainable = model.trainable();
  torch::autograd::backward({loss_of(model, batch)}, {});
  const at::NoGradGuard no_grad;
  RandomStream random(3, "entries");
  for (const NamedTensor& named : trainable) {
    ASSERT_TRUE(named.tensor.grad().defined()) << named.name;
    at::Tensor flat = named.tensor.view({-1});
    const at::Tensor gradient = named.tensor.grad().reshape({-1});
    for (int trial = 0; trial < 3; ++trial) {
      const auto i = static_cast<int64_t>(random.below(static_cast<uint64_t>(flat.numel())));
      const double value = flat[i].item<double>(), step = 1e-5;
      flat[i] = value + step;
      const double above = loss_of(model, batch).item<double>();
      flat[i] = value - step;
      const double below = loss_of(model, batch).item<double>();
      flat[i] = value;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * step), 1e-8) << named.name << " entry " << i;
    }
  }
}

TEST(Transformer, IsTheModelOfThePapers) {
  for (const Config& config : variants()) {
    const Transformer model = tiny_transformer(config);
    for (const size_t length : {1, 2, 17}) {
      const std::vector<int32_t> ids = random_ids(config.vocabulary_size, length, length);
      EXPECT_LT(largest_difference(logits(model, ragged({ids})), naive_logits(model, ids, AdapterUse::on)), 1e-12);
    }
  }
}

TEST(Transformer, RecomputedLayersGiveTheSameGradients) {
  const Ragged batch = ragged({random_ids(11, 7, 1), random_ids(11, 3, 2)});
  for (const Config& config : families()) {
    for (const bool adapters : {false, true}) {
      Transformer model = random_transformer(config, 5, 0.3, at::kDouble);
      if (adapters) {
        add_random_lora(model, 2);  // behind a frozen embedding
      } else {
        model.set_trainable(true);
      }
      const auto gradients = [&](bool recompute) {
        model.recompute = recompute;
        for (const NamedTensor& p : model.trainable()) at::Tensor(p.tensor).mutable_grad().reset();
        const at::Tensor loss = model.logits(model.hidden(batch)).logsumexp(-1).sum();
        loss.backward();
        std::vector<at::Tensor> all{loss.detach()};
        for (const NamedTensor& p : model.trainable())
          all.push_back(p.tensor.grad().defined() ? p.tensor.grad().clone() : at::zeros_like(p.tensor));
        return all;
      };
      const auto kept = gradients(false), made = gradients(true);
      ASSERT_GT(kept.size(), 4U);
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(made[i])) << config.model_type << " " << i;
    }
  }
}

TEST(Transformer, AnAdapterIsALowRankChange) {
  for (const Config& config : variants()) {
    Transformer model = tiny_transformer(config);
    add_random_lora(model, 3);
    const std::vector<int32_t> ids = random_ids(config.vocabulary_size, 9, 2);
    const std::vector<std::vector<double>> with = naive_logits(model, ids, AdapterUse::on);
    EXPECT_LT(largest_difference(logits(model, ragged({ids})), with), 1e-12);
    EXPECT_LT(largest_difference(model.logits(model.hidden(ragged({ids}))), with), 1e-12) << "with gradients";
    EXPECT_LT(
        largest_difference(logits(model, ragged({ids}), AdapterUse::off), naive_logits(model, ids, AdapterUse::off)),
        1e-12);
    EXPECT_GT(largest_difference(logits(model, ragged({ids}), AdapterUse::off), with), 0.1);
  }
}

TEST(Transformer, ABatchEqualsItsSequencesOneByOne) {
  const Transformer model = tiny_transformer(tiny_config());
  std::vector<std::vector<int32_t>> sequences;
  std::vector<at::Tensor> alone;
  for (const size_t length : {5, 1, 23, 2}) {
    sequences.push_back(random_ids(37, length, 40 + length));
    alone.push_back(logits(model, ragged({sequences.back()})));
  }
  EXPECT_LT(largest_difference(logits(model, ragged(sequences)), at::cat(alone)), 1e-12);
}

TEST(Transformer, NothingAfterATokenChangesIt) {
  const Transformer model = tiny_transformer(tiny_config());
  std::vector<int32_t> ids = random_ids(37, 12, 8);
  const at::Tensor before = logits(model, ragged({ids})).narrow(0, 0, 7);
  ids[7] = (ids[7] + 1) % 37;
  EXPECT_EQ(largest_difference(logits(model, ragged({ids})).narrow(0, 0, 7), before), 0);
}

TEST(Transformer, ACacheChangesNothing) {
  const at::NoGradGuard no_grad;
  Config config = tiny_config();
  config.max_positions = 1024;
  const Transformer model = tiny_transformer(config);
  const std::vector<int32_t> first = random_ids(37, 700, 1), second = random_ids(37, 9, 2);
  KvCache cache1(config.layers), cache2(config.layers);
  std::vector<at::Tensor> pieces1, pieces2;
  size_t at1 = 0, at2 = 0;
  // Pieces of one token and of several, beyond two growths of the cache.
  for (const auto& [n1, n2] : std::vector<std::pair<size_t, size_t>>{{200, 3}, {1, 1}, {99, 4}, {400, 1}}) {
    const auto piece = [](const std::vector<int32_t>& all, size_t begin, size_t count) {
      return std::vector<int32_t>(all.begin() + static_cast<long>(begin),
                                  all.begin() + static_cast<long>(begin + count));
    };
    Ragged batch = ragged({piece(first, at1, n1), piece(second, at2, n2)});
    batch.caches = {&cache1, &cache2};
    const std::vector<at::Tensor> parts = logits(model, batch).split_with_sizes(batch.lengths);
    pieces1.push_back(parts[0]);
    pieces2.push_back(parts[1]);
    at1 += n1;
    at2 += n2;
  }
  EXPECT_EQ(cache1.length(), 700);
  EXPECT_LT(largest_difference(at::cat(pieces1), logits(model, ragged({first}))), 1e-12);
  EXPECT_LT(largest_difference(at::cat(pieces2), logits(model, ragged({second}))), 1e-12);

  // Going back, and a copy that goes its own way.
  cache2.truncate(5);
  KvCache copy = cache2.clone();
  for (KvCache* cache : {&cache2, &copy}) {
    Ragged rest = ragged({std::vector<int32_t>(second.begin() + 5, second.end())});
    rest.caches = {cache};
    EXPECT_LT(largest_difference(logits(model, rest), logits(model, ragged({second})).narrow(0, 5, 4)), 1e-12);
  }
}

TEST(Transformer, GradientsOfAllWeightsAreThoseOfTheLoss) {
  for (const Config& config : variants()) {
    Transformer model = tiny_transformer(config);
    model.set_trainable(true);
    check_gradients(model, ragged({random_ids(37, 7, 1), random_ids(37, 2, 2), random_ids(37, 5, 3)}));
  }
}

TEST(Transformer, GradientsOfAnAdapterAreThoseOfTheLoss) {
  for (const Config& config : variants()) {
    Transformer model = tiny_transformer(config);
    add_random_lora(model, 2);
    check_gradients(model, ragged({random_ids(37, 7, 1), random_ids(37, 2, 2)}));
    for (const NamedTensor& named : model.parameters()) EXPECT_FALSE(named.tensor.grad().defined()) << named.name;
  }
}

TEST(Transformer, GradientsOfAnAdapterAndItsBaseTogether) {
  Config config = tiny_config();
  config.attention_bias = config.mlp_bias = true;
  Transformer model = tiny_transformer(config);
  add_random_lora(model, 2, {"q_proj", "down_proj"});
  model.set_trainable(true);
  check_gradients(model, ragged({random_ids(37, 7, 1)}));
}

TEST(Transformer, TheStreamingHeadSeesTheSameLogits) {
  for (const Config& config : variants()) {
    const Transformer model = tiny_transformer(config);
    const std::vector<std::vector<int32_t>> sequences = {random_ids(37, 6, 1), random_ids(37, 1, 2),
                                                         random_ids(37, 3, 3)};
    const std::vector<SequenceScores> scores = score(model, sequences, 4);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const at::Tensor rows = logits(model, ragged({sequences[s]})), logps = at::log_softmax(rows, -1);
      ASSERT_EQ(scores[s].logps.size(), sequences[s].size() - 1);
      ASSERT_EQ(scores[s].top_ids.size(), 4 * sequences[s].size());
      for (size_t t = 0; t < sequences[s].size(); ++t) {
        const at::Tensor row = logps[static_cast<int64_t>(t)];
        if (t + 1 < sequences[s].size()) {
          EXPECT_NEAR(scores[s].logps[t], row[sequences[s][t + 1]].item<double>(), 1e-10);
        }
        EXPECT_NEAR(scores[s].entropy[t], -(row.exp() * row).sum().item<double>(), 1e-10);
        EXPECT_NEAR(scores[s].logsumexp[t], rows[static_cast<int64_t>(t)].logsumexp(0).item<double>(), 1e-10);
        const auto [values, ids] = row.topk(4);
        for (size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(scores[s].top_ids[4 * t + k], ids[static_cast<int64_t>(k)].item<int64_t>());
          EXPECT_NEAR(scores[s].top_logps[4 * t + k], values[static_cast<int64_t>(k)].item<double>(), 1e-10);
        }
      }
    }
  }
}

TEST(Transformer, AClonesWeightsAreItsOwn) {
  Config config = tiny_config();
  config.tied_head = true;
  Transformer model = tiny_transformer(config);
  add_random_lora(model, 2);
  const Ragged batch = ragged({random_ids(37, 5, 1)});
  const at::Tensor before = logits(model, batch);
  const Transformer copy = model.clone();
  EXPECT_TRUE(copy.head.is_same(copy.embedding));
  EXPECT_TRUE(copy.trainable().empty());
  const at::NoGradGuard no_grad;
  for (NamedTensor& named : model.parameters()) named.tensor.add_(1);
  for (NamedTensor& named : model.adapter()) named.tensor.add_(1);
  EXPECT_EQ(largest_difference(logits(copy, batch), before), 0);
}

TEST(Transformer, NamesAreHuggingFaces) {
  Config config = tiny_config();
  config.attention_bias = true;
  std::vector<std::string> names;
  for (const NamedTensor& named : random_transformer(config, 1).parameters()) names.push_back(named.name);
  EXPECT_EQ(names.size(), 2 * (9 + 4) + 3);
  for (const char* expected :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.bias", "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.norm.weight", "lm_head.weight"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), expected), names.end()) << expected;
  }
}

TEST(Transformer, SaysWhatIsWrongWithIds) {
  const Transformer model = tiny_transformer(tiny_config());
  EXPECT_THROW(ragged({{1, 2}, {}}), Error);
  EXPECT_THROW(model.hidden(ragged({{1, 37}})), Error);
  EXPECT_THROW(model.hidden(ragged({{1, -1}})), Error);
  Ragged batch = ragged({{1, 2}});
  batch.lengths = {3};
  EXPECT_THROW(model.hidden(batch), std::logic_error);
}

TEST(Transformer, RotationsCanBeStretched) {
  // Llama 3.1's rule at its two ends and between; frequencies theta^(-2j/d).
  const Rope plain{.theta = 500000};
  Rope rope = plain;
  rope.scaling = Rope::Scaling::llama3;
  rope.factor = 8;
  rope.original_positions = 8192;
  const std::vector<double> before = rope_frequencies(plain, 128), after = rope_frequencies(rope, 128);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NEAR(after[63], before[63] / 8, 1e-18);
  size_t between = 0;
  for (size_t j = 0; j < 64; ++j)
    between += after[j] < before[j] * (1 - 1e-12) && after[j] > before[j] / 8 * (1 + 1e-12);
  EXPECT_GT(between, 3u);
  rope.scaling = Rope::Scaling::linear;
  EXPECT_NEAR(rope_frequencies(rope, 128)[5], before[5] / 8, 1e-18);
}

}  // namespace
}  // namespace kullback
