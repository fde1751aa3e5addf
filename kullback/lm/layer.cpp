#include "kullback/lm/layer.h"

#include <stdexcept>
#include <string_view>

namespace kullback {

const std::vector<NamedLinear>& layer_linears() {
  static const std::vector<NamedLinear> all = {
      {"self_attn.q_proj", &Layer::query},  {"self_attn.k_proj", &Layer::key}, {"self_attn.v_proj", &Layer::value},
      {"self_attn.o_proj", &Layer::output}, {"mlp.gate_proj", &Layer::gate},   {"mlp.up_proj", &Layer::up},
      {"mlp.down_proj", &Layer::down},
  };
  return all;
}

std::string linear_name(Linear Layer::*linear) {
  for (const NamedLinear& named : layer_linears()) {
    if (named.linear != linear) continue;
    const std::string_view module = named.module;
    return std::string(module.substr(module.rfind('.') + 1));
  }
  throw std::logic_error("a linear layer without a name");
}

const std::vector<Norm Layer::*>& layer_norms() {
  static const std::vector<Norm Layer::*> all = {&Layer::attention_norm,      &Layer::mlp_norm,
                                                 &Layer::attention_post_norm, &Layer::mlp_post_norm,
                                                 &Layer::query_norm,          &Layer::key_norm};
  return all;
}

}  // namespace kullback
