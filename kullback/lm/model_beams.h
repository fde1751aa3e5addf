#pragma once

#include "kullback/lm/beam_search.h"
#include "kullback/lm/transformer.h"

namespace kullback {

/// Beam search over a model's continuations of a prompt, all beams in one batch with a KV cache each. Takes no gradients.
/// Throws an Error for an empty prompt, one that leaves no room, or an option that is out of range.
std::vector<Beam> beam_search(const Transformer& model, const std::vector<int32_t>& prompt, BeamSearchOptions options,
                              AdapterUse use = AdapterUse::on);

}  // namespace kullback
