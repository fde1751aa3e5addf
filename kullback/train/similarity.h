#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kullback {

/// ROUGE-L (Lin 2004) of two token sequences: F1 of the length of their longest common subsequence; 0 where either is empty.
double rouge_l(std::span<const int32_t> first, std::span<const int32_t> second);

/// Sequence interpolation (Kim and Rush 2016, section 3.3): the hypothesis most similar to the data's response, of equals the
/// better-ranked. `similarity`: one number a hypothesis, in their order. Error if there is none.
size_t most_similar(std::span<const double> similarity);

}  // namespace kullback
