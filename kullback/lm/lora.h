#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kullback/lm/transformer.h"

namespace kullback {

/// Low-rank adapters. Hu et al. 2021, arXiv 2106.09685.
struct LoraOptions {
  int64_t rank = 16;  ///< r >= 1
  double alpha = 32;  ///< the change is scaled by alpha / r
  /// Any of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; or the one word all-linear.
  std::vector<std::string> targets = {"all-linear"};
};

/// Freezes the base weights and gives every targeted linear layer an adapter that changes nothing yet: `a` uniform in
/// +-1/sqrt(in) (as PEFT's Kaiming rule with a = sqrt 5), `b` zero. Replaces any adapter that is there. Throws an Error
/// that names an unknown target or a rank below 1.
void add_lora(Transformer& model, const LoraOptions& options, uint64_t seed);

/// Replaces each adapted weight by its sum with the adapter. Copies of the model that share the old weights keep them.
void merge_lora(Transformer& model);

/// Removes the adapters.
void remove_lora(Transformer& model);

/// What the adapters in place were made with (targets by name, in the model's order). Throws an Error when there are
/// none.
LoraOptions lora_options(const Transformer& model);

/// Puts a PEFT adapter on a model (LoRA; no DoRA, no extra modules), its base weights frozen, the adapter trainable.
/// Replaces any adapter that is there. Throws an Error naming the file and the key or tensor at fault.
void load_adapter(Transformer& model, const std::filesystem::path& folder);

}  // namespace kullback
