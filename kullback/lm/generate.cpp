#include "kullback/lm/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"
#include "kullback/lm/prompt_cache.h"

namespace kullback {
namespace {

// One prompt's way through the loop.
struct Stream {
  size_t prompt;
  KvCache cache;
  RandomStream random;
  std::vector<int32_t> history;  // the prompt, then each new token
  std::vector<int32_t> next;     // tokens that the model has not seen yet
};

void check(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
           const GenerationOptions& options) {
  validate(options.sampling);
  if (!options.streams.empty() && options.streams.size() != prompts.size())
    throw std::logic_error("generate: one stream a prompt, or none");
  if (!options.stop_texts.empty() && !options.tokenizer)
    throw std::logic_error("generate: stop texts need a tokenizer");
  if (options.slots < 1) fail("the number of slots is {}, which must be at least 1", options.slots);
  const int64_t room = model.config.longest_sequence();
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) fail("prompt {} is empty: a model needs a token to begin with", i + 1);
    if (static_cast<int64_t>(prompts[i].size()) >= room)
      fail("prompt {} has {} tokens, and the model has no room beyond {}", i + 1, prompts[i].size(), room);
  }
}

// Logits after the last token of every stream. [streams, V] float32
at::Tensor last_logits(const Transformer& model, std::vector<Stream>& active, const GenerationOptions& options) {
  std::vector<std::vector<int32_t>> sequences;
  for (const Stream& stream : active) sequences.push_back(stream.next);
  Ragged batch = ragged(sequences);
  for (Stream& stream : active) batch.caches.push_back(&stream.cache);
  std::vector<int64_t> last;
  int64_t end = 0;
  for (const int64_t length : batch.lengths) last.push_back((end += length) - 1);
  const at::Tensor hidden = model.hidden(batch, options.adapter).index_select(0, at::tensor(last, at::kLong));
  const at::Tensor logits = model.logits(hidden);
  const int64_t real = options.vocabulary > 0 ? std::min(options.vocabulary, logits.size(1)) : logits.size(1);
  return logits.narrow(1, 0, real).to(at::kFloat).contiguous();
}

// Whether the next token is the first beyond the context that longrope's short factors are for.
bool outgrows_rotation(const Rope& rope, int64_t length) {
  return rope.scaling == Rope::Scaling::longrope && length == rope.original_positions;
}

double log_normaliser(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return largest + std::log(total);
}

void record(std::span<const float> logits, int32_t token, double sampler_logp, const GenerationOptions& options,
            Generated& result) {
  if (!options.logps && options.top_logps == 0) return;
  const double normaliser = log_normaliser(logits);
  if (options.logps) {
    result.logps.push_back(logits[static_cast<size_t>(token)] - normaliser);
    result.sampler_logps.push_back(sampler_logp);
  }
  const auto count = std::min(static_cast<size_t>(options.top_logps), logits.size());
  if (count == 0) return;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  for (size_t i = 0; i < count; ++i) {
    result.top_ids.push_back(ids[i]);
    result.top_logps.push_back(value(ids[i]) - normaliser);
  }
}

// Where the first stop text begins in the text of the new tokens, or npos. The tail alone is looked at while there is
// none: a token stands for a byte at least.
size_t stop_place(const std::vector<int32_t>& ids, const GenerationOptions& options, std::string& text) {
  if (options.stop_texts.empty()) return std::string::npos;
  size_t longest = 0;
  for (const std::string& stop : options.stop_texts) longest = std::max(longest, stop.size());
  const size_t tail = std::min(ids.size(), longest + 4);
  const std::string end = options.tokenizer->decode(std::span(ids).last(tail), /*skip_special=*/true);
  const auto found = [&](const std::string& in) {
    size_t first = std::string::npos;
    for (const std::string& stop : options.stop_texts) first = std::min(first, in.find(stop));
    return first;
  };
  if (found(end) == std::string::npos) return std::string::npos;
  text = options.tokenizer->decode(ids, /*skip_special=*/true);
  return found(text);
}

class Engine {
 public:
  Engine(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts, const GenerationOptions& options,
         const OnToken& on_token)
      : model_(model),
        prompts_(prompts),
        options_(options),
        on_token_(on_token),
        beginnings_(model, prompts, options.adapter),
        results_(prompts.size()) {}

  std::vector<Generated> run() {
    while (fill(), !active_.empty()) {
      const at::Tensor logits = last_logits(model_, active_, options_);
      const std::vector<int32_t> tokens = drawn(logits);
      std::vector<Stream> still;
      for (size_t i = 0; i < active_.size(); ++i) {
        if (advance(active_[i], tokens[i])) still.push_back(std::move(active_[i]));
      }
      active_ = std::move(still);
    }
    for (Generated& result : results_) {
      if (options_.tokenizer && result.text.empty()) result.text = options_.tokenizer->decode(result.ids, true);
    }
    return std::move(results_);
  }

 private:
  // Waiting prompts take the slots that are free.
  void fill() {
    while (active_.size() < static_cast<size_t>(options_.slots) && waiting_ < prompts_.size()) {
      const size_t i = waiting_++;
      const uint64_t number = options_.streams.empty() ? i : options_.streams[i];
      Stream stream{
          i, beginnings_.start(prompts_[i]), RandomStream(options_.seed, "generate", number), prompts_[i], {}};
      stream.next.assign(prompts_[i].begin() + static_cast<std::ptrdiff_t>(stream.cache.length()), prompts_[i].end());
      active_.push_back(std::move(stream));
    }
  }

  // The next token of every stream, with what is recorded of it. Streams have nothing in common: each may have its thread.
  std::vector<int32_t> drawn(const at::Tensor& logits) {
    std::vector<int32_t> tokens(active_.size());
    const auto width = static_cast<size_t>(logits.size(1));
    const float* rows = logits.const_data_ptr<float>();
    at::parallel_for(0, std::ssize(active_), 1, [&](int64_t first, int64_t last) {
      for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
        Stream& stream = active_[i];
        const std::span<const float> row(rows + i * width, width);
        const NextTokenLaw law = next_token_law(row, options_.sampling, stream.history);
        const size_t place = draw_place(law, stream.random.uniform());
        tokens[i] = law.ids[place];
        record(row, tokens[i], std::log(law.probabilities[place]), options_, results_[stream.prompt]);
      }
    });
    return tokens;
  }

  // Adds a token to a stream and says whether the stream goes on.
  bool advance(Stream& stream, int32_t token) {
    Generated& result = results_[stream.prompt];
    result.ids.push_back(token);
    stream.history.push_back(token);
    result.stopped = std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) != options_.stop_ids.end();
    std::string text;
    if (const size_t stop = stop_place(result.ids, options_, text); stop != std::string::npos) {
      result.stopped = true;
      result.text = text.substr(0, stop);
    }
    const bool wanted = !on_token_ || on_token_(stream.prompt, token);
    stream.next = {token};
    if (outgrows_rotation(model_.config.rope, stream.cache.length())) {
      stream.cache = KvCache(model_.config.layers);  // every key is turned otherwise from here on
      stream.next = stream.history;
    }
    return wanted && !result.stopped && static_cast<int64_t>(result.ids.size()) < options_.max_new_tokens &&
           static_cast<int64_t>(stream.history.size()) < model_.config.longest_sequence();
  }

  const Transformer& model_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const GenerationOptions& options_;
  const OnToken& on_token_;
  PromptCache beginnings_;
  std::vector<Generated> results_;
  std::vector<Stream> active_;
  size_t waiting_ = 0;
};

}  // namespace

std::vector<Generated> generate(const Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
                                const GenerationOptions& options, const OnToken& on_token) {
  check(model, prompts, options);
  const c10::InferenceMode inference;  // a step is so short that keeping count of views and versions would show
  if (options.max_new_tokens <= 0) return std::vector<Generated>(prompts.size());
  return Engine(model, prompts, options, on_token).run();
}

}  // namespace kullback
