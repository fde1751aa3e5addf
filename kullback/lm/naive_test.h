#pragma once

#include <cstdint>
#include <vector>

#include "kullback/lm/transformer.h"

namespace kullback::test {

/// A tiny configuration in which no two sizes are equal, so that a mistaken dimension cannot pass unseen.
Config tiny_config();

/// Random weights in float64, with norms away from one and, where the configuration has them, biases.
Transformer tiny_transformer(const Config& config, uint64_t seed = 1);

/// Gives adapters that change something: both matrices random.
void add_random_lora(Transformer& model, int64_t rank, const std::vector<std::string>& targets = {"all-linear"});

/// Random ids of one sequence.
std::vector<int32_t> random_ids(int64_t vocabulary, size_t length, uint64_t seed);

/// The logits of a sequence by the definitions of the papers, one number at a time: loops over vectors, no tensor
/// operations, no batch, no cache, every rotation a complex product. [n][V]
std::vector<std::vector<double>> naive_logits(const Transformer& model, const std::vector<int32_t>& ids,
                                              AdapterUse use);

}  // namespace kullback::test
