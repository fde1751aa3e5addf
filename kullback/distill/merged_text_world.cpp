#include "kullback/distill/merged_text_world.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "kullback/distill/token_alignment.h"
#include "kullback/divergence/head.h"
#include "kullback/lm/sampling.h"
#include "kullback/world/law.h"

namespace kullback {

using at::Tensor;

MergedTextWorld merged_text_world(uint64_t seed) {
  RandomStream stream(seed, "merged text");
  MergedTextWorld world;
  world.source = log_probabilities(as_rows(1.5 * normals({world.characters + 1, world.characters}, stream)));
  return world;
}

std::vector<std::string> draw_texts(const MergedTextWorld& world, int64_t texts, int64_t length, uint64_t seed) {
  RandomStream stream(seed, "merged text/draw");
  const Tensor laws = world.source.exp().contiguous();
  std::vector<std::string> drawn;
  for (int64_t i = 0; i < texts; ++i) {
    std::string text;
    for (int64_t t = 0, last = world.characters; t < length; ++t) {
      const double* row = laws.const_data_ptr<double>() + last * world.characters;
      last = draw(std::span(row, static_cast<size_t>(world.characters)), stream.uniform());
      text += static_cast<char>('a' + last);
    }
    drawn.push_back(std::move(text));
  }
  return drawn;
}

std::vector<std::string> merged_vocabulary(const MergedTextWorld& world, const std::vector<std::string>& texts,
                                           int64_t merges) {
  std::vector<std::string> vocabulary;
  for (int64_t i = 0; i < world.characters; ++i) vocabulary.emplace_back(1, static_cast<char>('a' + i));
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    for (size_t t = 0; t + 1 < text.size(); ++t) ++counts[text.substr(t, 2)];
  }
  std::vector<std::pair<int64_t, std::string>> pairs;
  for (const auto& [pair, count] : counts) pairs.emplace_back(-count, pair);
  std::ranges::sort(pairs);
  for (int64_t i = 0; i < std::min(merges, std::ssize(pairs)); ++i)
    vocabulary.push_back(pairs[static_cast<size_t>(i)].second);
  return vocabulary;
}

std::vector<int64_t> merged_tokens(const std::vector<std::string>& vocabulary, const std::string& text) {
  std::vector<int64_t> tokens;
  for (size_t t = 0; t < text.size();) {
    const auto id = [&](size_t length) { return std::ranges::find(vocabulary, text.substr(t, length)); };
    const auto pair = id(2), found = pair != vocabulary.end() ? pair : id(1);
    tokens.push_back(found - vocabulary.begin());
    t += found->size();
  }
  return tokens;
}

TokenBatch token_batch(const std::vector<std::string>& vocabulary, const std::vector<std::string>& texts) {
  TokenBatch batch;
  std::vector<std::vector<int64_t>> previous;
  for (const std::string& text : texts) {
    batch.tokens.push_back(merged_tokens(vocabulary, text));
    previous.push_back({std::ssize(vocabulary)});
    previous.back().insert(previous.back().end(), batch.tokens.back().begin(), batch.tokens.back().end() - 1);
    batch.characters += static_cast<double>(text.size());
  }
  batch.labels = padded_lists(batch.tokens), batch.mask = batch.labels >= 0;
  batch.labels = batch.labels.clamp_min(0), batch.previous = padded_lists(previous).clamp_min(0);
  return batch;
}

double nats_a_character(const Tensor& table, const TokenBatch& batch) {
  const Tensor logps =
      label_logps(as_rows(table.index_select(0, batch.previous.reshape(-1))), batch.labels.reshape(-1));
  return -(logps.reshape(batch.mask.sizes()) * batch.mask).sum().item<double>() / batch.characters;
}

}  // namespace kullback
