#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kullback/lm/sampling.h"
#include "kullback/lm/transformer.h"

namespace kullback {

struct GenerationOptions {
  Sampling sampling;
  int64_t max_new_tokens = 256;
  std::vector<int32_t> stop_ids;  ///< each ends a sequence and is its last token
  uint64_t seed = 0;
  /// One a prompt: the number of its random stream. Empty: 0, 1, 2, ... A sequence's draws depend on `seed` and this
  /// number, not on what else is in the batch.
  std::vector<uint64_t> streams;
  bool logps = false;  ///< record log-probabilities of the drawn tokens
  AdapterUse adapter = AdapterUse::on;
};

struct Generated {
  std::vector<int32_t> ids;   ///< new tokens, the stop token included
  bool stopped = false;       ///< by a stop token rather than by the limit
  std::vector<double> logps;  ///< of each new token under the model itself (temperature 1, no filter); when asked for
};

/// Called with each new token as soon as it is drawn: the number of its prompt and the token. Returning false ends that
/// sequence.
using OnToken = std::function<bool(size_t prompt, int32_t token)>;

/// Continues every prompt, all in one batch that shrinks as sequences end, with a KV cache each. Takes no gradients.
/// Throws an Error for an empty prompt or one that leaves no room before `config.max_positions`.
std::vector<Generated> generate(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
                                const GenerationOptions& options, const OnToken& on_token = {});

}  // namespace kullback
