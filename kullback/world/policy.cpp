#include "kullback/world/policy.h"

#include <ATen/ATen.h>

#include "kullback/world/law.h"

namespace kullback {

using at::Tensor;

Tensor Policy::log_rows(const SequenceSpace& space) const {
  return log_probabilities(rows()).reshape({-1, space.prefixes(), space.vocabulary});
}

Policy tabular_policy(const Tensor& rows) {
  const Tensor logits = rows.detach().clone().requires_grad_(true);
  return {.rows = [logits] { return as_rows(logits); }, .parameters = {{"logits", logits}}};
}

Transformer world_transformer(const SequenceSpace& space, int64_t prompts, double deviation, uint64_t seed) {
  Config config;
  config.vocabulary_size = space.vocabulary + prompts;
  config.hidden_size = 16;
  config.layers = 2;
  config.heads = 2;
  config.key_value_heads = 1;
  config.head_size = 8;
  config.mlp_size = 24;
  config.max_positions = space.length + 1;
  return random_transformer(config, seed, 0.5 * deviation, at::kDouble);
}

namespace {

/// Every response's prompt and tokens up to the last that predicts one, laid end to end, and where in it each prefix's row
/// is: at the last token of the first sequence that begins with it.
struct Walk {
  Ragged tokens;
  Tensor rows;  // [C P] int64
};

Walk walk(const SequenceSpace& space, int64_t prompts) {
  const int64_t prefixes = space.prefixes(), longest = space.length - 1;
  const int64_t leaves = space.prefixes_of(longest), first_leaf = prefixes - leaves;
  std::vector<std::vector<int32_t>> sequences;
  std::vector<int64_t> rows;
  for (int64_t c = 0; c < prompts; ++c) {
    const int64_t begin = static_cast<int64_t>(sequences.size()) * space.length;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      std::vector<int32_t> sequence{static_cast<int32_t>(space.vocabulary + c)};
      for (const int64_t token : prefix_tokens(space, first_leaf + leaf))
        sequence.push_back(static_cast<int32_t>(token));
      sequences.push_back(std::move(sequence));
    }
    for (int64_t t = 0, below = leaves; t <= longest; ++t, below /= space.branching()) {
      for (int64_t i = 0; i < space.prefixes_of(t); ++i) rows.push_back(begin + i * below * space.length + t);
    }
  }
  return {.tokens = ragged(sequences), .rows = at::tensor(rows, at::kLong)};
}

}  // namespace

Policy transformer_policy(Transformer& transformer, const SequenceSpace& space, int64_t prompts) {
  transformer.set_trainable(true);
  const Transformer model = transformer;  // shares the weights
  return {.rows =
              [model, vocabulary = space.vocabulary, walked = walk(space, prompts)] {
                Rows rows = model.head_rows(model.hidden(walked.tokens).index_select(0, walked.rows));
                rows.vocabulary = vocabulary;  // prompts' tokens are never said
                return rows;
              },
          .parameters = transformer.trainable()};
}

Policy fresh_policy(const World& world) {
  if (!world.transformer) return tabular_policy(world.reference_rows);
  Transformer copy = world.transformer->clone();
  return transformer_policy(copy, world.space, world.prompts.size(0));
}

}  // namespace kullback
