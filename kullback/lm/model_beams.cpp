#include "kullback/lm/model_beams.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/lm/sampling.h"

namespace kullback {
namespace {

// The caches of the beams of one step, by their new tokens: those of the next step begin as copies.
class BeamCaches {
 public:
  BeamCaches(const Transformer& model, const std::vector<int32_t>& prompt, AdapterUse use, int64_t vocabulary)
      : model_(model), prompt_(prompt), use_(use), vocabulary_(vocabulary) {}

  std::vector<std::vector<double>> next(const std::vector<std::vector<int32_t>>& sequences) {
    std::map<std::vector<int32_t>, KvCache> caches;
    std::vector<std::vector<int32_t>> unseen;
    for (const std::vector<int32_t>& sequence : sequences) {
      if (sequence.empty()) {
        caches.emplace(sequence, KvCache(model_.config.layers));
        unseen.push_back(prompt_);
      } else {
        caches.emplace(sequence, caches_.at({sequence.begin(), sequence.end() - 1}).clone());
        unseen.push_back({sequence.back()});
      }
    }
    caches_ = std::move(caches);
    Ragged batch = ragged(unseen);
    std::vector<int64_t> last;
    int64_t end = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      batch.caches.push_back(&caches_.at(sequences[i]));
      last.push_back((end += batch.lengths[i]) - 1);
    }
    const at::Tensor hidden = model_.hidden(batch, use_).index_select(0, at::tensor(last, at::kLong));
    const at::Tensor logits = model_.logits(hidden).to(at::kDouble);
    const int64_t real = vocabulary_ > 0 ? std::min(vocabulary_, logits.size(1)) : logits.size(1);
    const at::Tensor logps = at::log_softmax(logits.narrow(1, 0, real), -1).contiguous();
    std::vector<std::vector<double>> rows;
    const int64_t width = logps.size(1);
    for (int64_t i = 0; i < logps.size(0); ++i) {
      const double* row = logps.const_data_ptr<double>() + i * width;
      rows.emplace_back(row, row + width);
    }
    return rows;
  }

 private:
  const Transformer& model_;
  const std::vector<int32_t>& prompt_;
  AdapterUse use_;
  int64_t vocabulary_;
  std::map<std::vector<int32_t>, KvCache> caches_;
};

}  // namespace

std::vector<Beam> beam_search(const Transformer& model, const std::vector<int32_t>& prompt, BeamSearchOptions options,
                              AdapterUse use) {
  const at::NoGradGuard no_grad;
  const int64_t room = model.config.longest_sequence();
  if (prompt.empty()) fail("the prompt is empty: a model needs a token to begin with");
  if (static_cast<int64_t>(prompt.size()) >= room)
    fail("the prompt has {} tokens, and the model has no room beyond {}", prompt.size(), room);
  options.max_new_tokens = std::min(options.max_new_tokens, room - static_cast<int64_t>(prompt.size()));
  BeamCaches caches(model, prompt, use, options.vocabulary);
  return beam_search([&](const auto& sequences) { return caches.next(sequences); }, options);
}

}  // namespace kullback
