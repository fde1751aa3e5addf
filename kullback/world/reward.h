#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "kullback/world/sequences.h"

namespace kullback {

/// What a reward is made of, for help and errors.
extern const char* const reward_grammar;

/// The rewards of all responses after each prompt, [C,R] float64, from a sum such as "random + 0.5*length - 2*ends:11":
/// - `random`, `random:K`: standard normal, one number a prompt and response; K tells several tables apart
/// - `length`: tokens of the response, the end token not counted
/// - `count:T`: how often token T occurs
/// - `ends:TT..`: 1 where the last tokens (the end token left out) are these, else 0
/// - `towards`, `towards:K`: ln of the ratio of a random law to the reference. With weight w, the optimum at beta = w is that
///   law itself, whatever the reference: a reward whose optimum is known.
/// `reference_logps`: [C,R]. Error that names `option` where the text is not such a sum.
at::Tensor rewards(const std::string& text, const SequenceSpace& space, const SequenceTable& table,
                   const at::Tensor& reference_logps, uint64_t seed, const std::string& option);

/// The law that `towards:K` leads to. [C,R] log-probabilities
at::Tensor target_law(const SequenceSpace& space, int64_t prompts, uint64_t seed, int64_t table);

}  // namespace kullback
