#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kullback/lm/cache.h"
#include "kullback/lm/transformer.h"

namespace kullback {

/// Keys and values of what prompts share, computed once: the tokens that all of them begin with, and the whole of a
/// prompt that is given several times.
class PromptCache {
 public:
  PromptCache(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts, AdapterUse use);

  /// A cache to start a prompt with. It holds at least one token less than the prompt has.
  KvCache start(const std::vector<int32_t>& prompt);

 private:
  void feed(KvCache& cache, const std::vector<int32_t>& prompt, size_t end) const;

  const Transformer& model_;
  AdapterUse use_;
  KvCache shared_;
  struct Repeated {
    int64_t left = 0;  // times that it will be asked for yet
    std::optional<KvCache> cache = {};
  };
  std::map<std::vector<int32_t>, Repeated> repeated_;
};

}  // namespace kullback
