#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kullback/lm/linear.h"

namespace kullback {

/// What a row is normed with; without a weight there is no norm.
struct Norm {
  at::Tensor weight;  ///< [D], or undefined
  at::Tensor bias;    ///< [D], or undefined
};

/// One layer of any family: what the family does not have is undefined.
struct Layer {
  Norm attention_norm, mlp_norm;            ///< of what goes into attention and MLP
  Norm attention_post_norm, mlp_post_norm;  ///< of what comes out of them
  Norm query_norm, key_norm;                ///< of each head [d], or of all together [H d], [K d]
  Linear query;                             ///< [H d, D]
  Linear key, value;                        ///< [K d, D]
  Linear output;                            ///< [D, H d]
  Linear gate, up;                          ///< [F, D]
  Linear down;                              ///< [D, F]
};

/// The linear layers by the names of Llama's modules, which adapters' targets are called by: `self_attn.q_proj` ...
/// `mlp.down_proj`.
struct NamedLinear {
  const char* module;
  Linear Layer::*linear;
};
const std::vector<NamedLinear>& layer_linears();

/// A linear layer as adapters' targets call it: `q_proj` ... `down_proj`.
std::string linear_name(Linear Layer::*linear);

/// Every norm that a layer may have.
const std::vector<Norm Layer::*>& layer_norms();

}  // namespace kullback
