#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kullback/lm/sampling.h"
#include "kullback/lm/transformer.h"
#include "kullback/text/tokenizer.h"

namespace kullback {

struct GenerationOptions {
  Sampling sampling;
  int64_t max_new_tokens = 256;
  std::vector<int32_t> stop_ids;  ///< each ends a sequence and is its last token
  /// Each ends a sequence as soon as its new tokens' text contains it; needs `tokenizer`.
  std::vector<std::string> stop_texts = {};
  const Tokenizer* tokenizer = nullptr;
  uint64_t seed = 0;
  /// One a prompt: the number of its random stream. Empty: 0, 1, 2, ... A sequence's draws depend on `seed` and this
  /// number, not on what else is in the batch.
  std::vector<uint64_t> streams;
  bool logps = false;     ///< record log-probabilities of the drawn tokens
  int64_t top_logps = 0;  ///< record so many likeliest tokens at each step, with log-probabilities
  int64_t slots = 32;     ///< sequences that are continued at once; as one ends, the next prompt takes its place
  AdapterUse adapter = AdapterUse::on;
  int64_t vocabulary = 0;  ///< real tokens: rows of the head beyond are padding and are never drawn; 0: all are real
};

struct Generated {
  std::vector<int32_t> ids;   ///< new tokens, the stop token included
  bool stopped = false;       ///< by a stop token or text rather than by the limit
  std::vector<double> logps;  ///< of each new token under the model itself (temperature 1, no filter); when asked for
  std::vector<double> sampler_logps = {};  ///< the same under the law that it was drawn from
  std::vector<int32_t> top_ids = {};       ///< [tokens, top_logps], likeliest first, under the model itself
  std::vector<double> top_logps = {};
  std::string text = {};  ///< without special tokens, cut before a stop text; when there is a tokenizer
};

/// Called with each new token as soon as it is drawn: the number of its prompt and the token. Returning false ends that
/// sequence.
using OnToken = std::function<bool(size_t prompt, int32_t token)>;

/// Continues every prompt, `slots` of them at a time in one batch, with a KV cache each; what all prompts begin with, and
/// a prompt that is given several times, is computed once. Takes no gradients. Throws an Error for an empty prompt or one
/// that leaves no room before the model's longest sequence.
std::vector<Generated> generate(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
                                const GenerationOptions& options, const OnToken& on_token = {});

}  // namespace kullback
