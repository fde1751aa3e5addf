#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kullback/lm/generate.h"

namespace kullback {

/// A place of a response at which both models have said what they think of the next token.
struct TogetherPlace {
  std::span<const float> student, teacher;  ///< logits [V] of the tokens that both have
  int32_t proposed = 0;                     ///< what the student drew
  double uniform = 0;                       ///< in [0,1), of this place and no other
  int64_t place = 0;                        ///< tokens of the response before it
  int64_t pass = 0;                         ///< how often the teacher was asked for this response before
};

/// A token, and its log-probability under the law that it was drawn from (NaN: not known).
struct SettledToken {
  int32_t token = 0;
  double logp = 0;
};

/// How two models draw a response together: the student proposes `block` tokens, the teacher looks at them in one pass, and
/// `settle` says of one after the other which token stands. One that is not the proposed one ends the block. Draws are tied to
/// places, so that the block's length changes the speed alone.
struct Together {
  Sampling student = {};  ///< of the proposals
  int64_t block = 1;
  std::function<SettledToken(const TogetherPlace&)> settle = {};
};

/// What came of it: `ids`, `stopped`, `sampler_logps` as generate has them.
struct GeneratedTogether : Generated {
  std::vector<bool> kept = {};  ///< of each token: whether it was the proposed one
};

/// Continues every prompt, with `sampling`, `adapter` and `top_logps` of the options not used. Vocabularies of different sizes
/// are cut to the common tokens. Takes no gradients; Errors as generate.
std::vector<GeneratedTogether> generate_together(const Transformer& student, const Transformer& teacher,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const GenerationOptions& options, const Together& together);

/// mixture: y ~ a p + (1 - a) q of the teacher's p and the student's q, both after `sampling`.
Together token_mixture(double teacher_share, const Sampling& sampling = {});

}  // namespace kullback
