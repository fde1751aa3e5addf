#include "kullback/lm/generate.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"

namespace kullback {
namespace {

// One prompt's way through the loop.
struct Stream {
  size_t prompt;
  KvCache cache;
  RandomStream random;
  std::vector<int32_t> given;  // the prompt
  std::vector<int32_t> next;   // tokens that the model has not seen yet: the prompt, then each new one
};

std::vector<Stream> streams(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
                            const GenerationOptions& options) {
  if (!options.streams.empty() && options.streams.size() != prompts.size())
    throw std::logic_error("generate: one stream a prompt, or none");
  std::vector<Stream> result;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) fail("prompt {} is empty: a model needs a token to begin with", i + 1);
    if (static_cast<int64_t>(prompts[i].size()) >= model.config.longest_sequence()) {
      fail("prompt {} has {} tokens, and the model has no room beyond {}", i + 1, prompts[i].size(),
           model.config.longest_sequence());
    }
    const uint64_t number = options.streams.empty() ? i : options.streams[i];
    result.push_back(
        {i, KvCache(model.config.layers), RandomStream(options.seed, "generate", number), prompts[i], prompts[i]});
  }
  return result;
}

// Logits after the last token of every stream. [streams, V] float32
at::Tensor last_logits(const Transformer& model, std::vector<Stream>& active, AdapterUse use) {
  std::vector<std::vector<int32_t>> sequences;
  for (const Stream& stream : active) sequences.push_back(stream.next);
  Ragged batch = ragged(sequences);
  for (Stream& stream : active) batch.caches.push_back(&stream.cache);
  std::vector<int64_t> last;
  int64_t end = 0;
  for (const int64_t length : batch.lengths) last.push_back((end += length) - 1);
  const at::Tensor hidden = model.hidden(batch, use).index_select(0, at::tensor(last, at::kLong));
  return model.logits(hidden).to(at::kFloat).contiguous();
}

// Whether the next token is the first beyond the context that longrope's short factors are for.
bool outgrows_rotation(const Rope& rope, int64_t length) {
  return rope.scaling == Rope::Scaling::longrope && length == rope.original_positions;
}

double log_probability(std::span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(total);
}

// Draws the next token of a stream and says whether the stream goes on.
bool advance(Stream& stream, std::span<const float> logits, const Transformer& model, const GenerationOptions& options,
             Generated& result, const OnToken& on_token) {
  const int32_t token = draw(next_token_law(logits, options.sampling), stream.random.uniform());
  result.ids.push_back(token);
  if (options.logps) result.logps.push_back(log_probability(logits, token));
  result.stopped = std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end();
  const bool wanted = !on_token || on_token(stream.prompt, token);
  stream.next = {token};
  if (outgrows_rotation(model.config.rope, stream.cache.length())) {
    // Every key is turned otherwise from here on.
    stream.cache = KvCache(model.config.layers);
    stream.next = stream.given;
    stream.next.insert(stream.next.end(), result.ids.begin(), result.ids.end());
  }
  return wanted && !result.stopped && static_cast<int64_t>(result.ids.size()) < options.max_new_tokens &&
         stream.cache.length() + 1 < model.config.longest_sequence();
}

}  // namespace

std::vector<Generated> generate(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
                                const GenerationOptions& options, const OnToken& on_token) {
  validate(options.sampling);
  const at::NoGradGuard no_grad;
  std::vector<Generated> results(prompts.size());
  std::vector<Stream> active = streams(model, prompts, options);
  if (options.max_new_tokens <= 0) active.clear();
  while (!active.empty()) {
    const at::Tensor logits = last_logits(model, active, options.adapter);
    const auto width = static_cast<size_t>(logits.size(1));
    std::vector<Stream> still;
    for (size_t i = 0; i < active.size(); ++i) {
      const std::span<const float> row(logits.const_data_ptr<float>() + i * width, width);
      if (advance(active[i], row, model, options, results[active[i].prompt], on_token))
        still.push_back(std::move(active[i]));
    }
    active = std::move(still);
  }
  return results;
}

}  // namespace kullback
