#include "kullback/lm/generate_together.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kullback/base/error.h"
#include "kullback/base/random.h"

namespace kullback {
namespace {

/// One model's view of a response: its cache, and how many tokens it has seen.
struct View {
  const Transformer& model;
  AdapterUse use;
  KvCache cache;

  /// Logits [n,V] float32 of the token after each of the last `wanted` tokens, once the model has seen all of `tokens`.
  at::Tensor after(const std::vector<int32_t>& tokens, int64_t wanted) {
    const auto all = static_cast<int64_t>(tokens.size());
    const Rope& rope = model.config.rope;
    const bool outgrown = rope.scaling == Rope::Scaling::longrope && all > rope.original_positions;
    if (outgrown != outgrown_) cache.truncate(0);  // every key is turned otherwise beyond that length
    outgrown_ = outgrown;
    const int64_t seen = std::min(cache.length(), all - wanted);  // what follows may have been thrown away since
    cache.truncate(seen);
    Ragged batch = ragged({{tokens.begin() + seen, tokens.end()}});
    batch.caches = {&cache};
    const at::Tensor hidden = model.hidden(batch, use);
    return model.logits(hidden.narrow(0, hidden.size(0) - wanted, wanted)).to(at::kFloat).contiguous();
  }

  bool outgrown_ = false;
};

std::span<const float> row_of(const at::Tensor& logits, int64_t row, int64_t vocabulary) {
  return {logits.const_data_ptr<float>() + row * logits.size(1), static_cast<size_t>(vocabulary)};
}

/// A stream's number of a place, whatever was drawn before.
double uniform_at(RandomStream& stream, int64_t place) {
  stream.seek(static_cast<uint64_t>(place));
  return stream.uniform();
}

class Pair {
 public:
  Pair(View student, View teacher, const GenerationOptions& options, const Together& together, uint64_t number)
      : student_(std::move(student)),
        teacher_(std::move(teacher)),
        options_(options),
        together_(together),
        proposals_(options.seed, "proposals", number),
        settlements_(options.seed, "settlements", number),
        vocabulary_(std::min(student_.model.config.vocabulary_size, teacher_.model.config.vocabulary_size)) {
    if (options.vocabulary > 0) vocabulary_ = std::min(vocabulary_, options.vocabulary);
  }

  GeneratedTogether run(const std::vector<int32_t>& prompt) {
    tokens_ = prompt;
    begin_ = static_cast<int64_t>(prompt.size());
    const int64_t room =
        std::min(student_.model.config.longest_sequence(), teacher_.model.config.longest_sequence()) - begin_;
    const int64_t most = std::min(options_.max_new_tokens, room);
    for (int64_t pass = 0; !result_.stopped && length() < most; ++pass) settle(propose(most - length()), pass);
    return std::move(result_);
  }

 private:
  struct Proposal {
    std::vector<int32_t> tokens;
    std::vector<at::Tensor> rows;  // [1,V] the student's
  };

  int64_t length() const { return static_cast<int64_t>(tokens_.size()) - begin_; }
  bool ends(int32_t token) const { return std::ranges::find(options_.stop_ids, token) != options_.stop_ids.end(); }

  Proposal propose(int64_t most) {
    Proposal proposal;
    std::vector<int32_t> tokens = tokens_;
    const int64_t count = std::min(together_.block, most);
    while (static_cast<int64_t>(proposal.tokens.size()) < count) {
      const at::Tensor logits = student_.after(tokens, 1);
      const NextTokenLaw law = next_token_law(row_of(logits, 0, vocabulary_), together_.student, tokens);
      const int64_t place = static_cast<int64_t>(tokens.size()) - begin_;
      tokens.push_back(draw(law, uniform_at(proposals_, place)));
      proposal.tokens.push_back(tokens.back());
      proposal.rows.push_back(logits);
      if (ends(tokens.back())) break;
    }
    return proposal;
  }

  void settle(const Proposal& proposal, int64_t pass) {
    const auto count = static_cast<int64_t>(proposal.tokens.size());
    std::vector<int32_t> seen = tokens_;
    seen.insert(seen.end(), proposal.tokens.begin(), proposal.tokens.end() - 1);
    const at::Tensor teacher = teacher_.after(seen, count);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t proposed = proposal.tokens[static_cast<size_t>(i)];
      const SettledToken settled =
          together_.settle({.student = row_of(proposal.rows[static_cast<size_t>(i)], 0, vocabulary_),
                            .teacher = row_of(teacher, i, vocabulary_),
                            .proposed = proposed,
                            .uniform = uniform_at(settlements_, length()),
                            .place = length(),
                            .pass = pass});
      tokens_.push_back(settled.token);
      result_.ids.push_back(settled.token);
      result_.sampler_logps.push_back(settled.logp);
      result_.kept.push_back(settled.token == proposed);
      result_.stopped = ends(settled.token);
      if (result_.stopped || settled.token != proposed) return;
    }
  }

  View student_, teacher_;
  const GenerationOptions& options_;
  const Together& together_;
  RandomStream proposals_, settlements_;
  int64_t vocabulary_, begin_ = 0;
  std::vector<int32_t> tokens_;  // the prompt and what is settled
  GeneratedTogether result_;
};

}  // namespace

std::vector<GeneratedTogether> generate_together(const Transformer& student, const Transformer& teacher,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const GenerationOptions& options, const Together& together) {
  if (!together.settle) throw std::logic_error("generate_together: nothing says which token stands");
  if (together.block < 1) fail("a block has {} tokens, and must have at least 1", together.block);
  validate(together.student);
  const at::NoGradGuard no_grad;
  std::vector<GeneratedTogether> results;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) fail("prompt {} is empty: a model needs a token to begin with", i + 1);
    const uint64_t number = options.streams.empty() ? i : options.streams[i];
    Pair pair({student, options.adapter, KvCache(student.config.layers)},
              {teacher, AdapterUse::on, KvCache(teacher.config.layers)}, options, together, number);
    results.push_back(pair.run(prompts[i]));
  }
  return results;
}

Together token_mixture(double teacher_share, const Sampling& sampling) {
  const auto settle = [=](const TogetherPlace& at) -> SettledToken {
    const auto filtered = [&](std::span<const float> logits) {
      std::vector<double> row(logits.begin(), logits.end());
      filter(row, {}, sampling);
      return softmax(row);
    };
    std::vector<double> mixture = filtered(at.student);
    const std::vector<double> teacher = filtered(at.teacher);
    for (size_t v = 0; v < mixture.size(); ++v)
      mixture[v] = teacher_share * teacher[v] + (1 - teacher_share) * mixture[v];
    const int32_t token = draw(mixture, at.uniform);
    return {token, std::log(mixture[static_cast<size_t>(token)])};
  };
  return {.student = sampling, .block = 1, .settle = settle};
}

}  // namespace kullback
