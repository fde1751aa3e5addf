#include "kullback/lm/prompt_cache.h"

#include <algorithm>

namespace kullback {
namespace {

// Tokens that all prompts begin with, one less than the shortest has at most.
size_t common_length(const std::vector<std::vector<int32_t>>& prompts) {
  if (prompts.size() < 2) return 0;
  size_t length = prompts[0].size();
  for (const std::vector<int32_t>& prompt : prompts) {
    const auto end = std::mismatch(prompts[0].begin(), prompts[0].end(), prompt.begin(), prompt.end()).first;
    length = std::min({length, static_cast<size_t>(end - prompts[0].begin()), prompt.size() - 1});
  }
  return length;
}

// Rotations that follow the length of the sequence: what is computed of its beginning alone is something else.
bool may_share(const Rope& rope) {
  return rope.scaling != Rope::Scaling::dynamic && rope.scaling != Rope::Scaling::longrope;
}

}  // namespace

PromptCache::PromptCache(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts, AdapterUse use)
    : model_(model), use_(use), shared_(model.config.layers) {
  if (!may_share(model.config.rope)) return;
  if (const size_t length = common_length(prompts); length > 0) feed(shared_, prompts[0], length);
  for (const std::vector<int32_t>& prompt : prompts) ++repeated_[prompt].left;
  std::erase_if(repeated_, [](const auto& entry) { return entry.second.left < 2 || entry.first.size() < 2; });
}

KvCache PromptCache::start(const std::vector<int32_t>& prompt) {
  const auto found = repeated_.find(prompt);
  if (found == repeated_.end()) return shared_.clone();
  Repeated& repeated = found->second;
  if (!repeated.cache) {
    repeated.cache = shared_.clone();
    feed(*repeated.cache, prompt, prompt.size() - 1);
  }
  KvCache cache = --repeated.left > 0 ? repeated.cache->clone() : std::move(*repeated.cache);
  if (repeated.left == 0) repeated_.erase(found);
  return cache;
}

void PromptCache::feed(KvCache& cache, const std::vector<int32_t>& prompt, size_t end) const {
  const auto begin = static_cast<size_t>(cache.length());
  if (begin == end) return;
  Ragged batch = ragged(
      {{prompt.begin() + static_cast<std::ptrdiff_t>(begin), prompt.begin() + static_cast<std::ptrdiff_t>(end)}});
  batch.caches = {&cache};
  model_.hidden(batch, use_);
}

}  // namespace kullback
