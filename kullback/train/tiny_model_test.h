#pragma once

#include "kullback/lm/model.h"
#include "kullback/text/byte_level_spec.h"

namespace kullback::test {

/// A random model of two layers that reads bytes, with ChatML's tokens: everything that a real one has, in milliseconds.
inline Model tiny_model(uint64_t seed = 1, at::ScalarType dtype = at::kFloat) {
  BpeSpec spec = byte_level_spec("tiny", {}, {"<|im_start|>", "<|im_end|>"});
  spec.special.bos = 256;
  spec.special.eos = 257;
  Config config;
  config.vocabulary_size = 258;
  config.hidden_size = 32;
  config.layers = 2;
  config.heads = 4;
  config.key_value_heads = 2;
  config.head_size = 8;
  config.mlp_size = 48;
  config.tied_head = true;
  config.bos = 256;
  config.eos = 257;
  Model model;
  model.name = "tiny";
  model.transformer = random_transformer(config, seed, 0.2, dtype);
  model.tokenizer = Tokenizer(spec);
  set_chat_template(model, ChatTemplate::named("chatml").jinja());
  model.generation.stop_ids = {257};
  return model;
}

}  // namespace kullback::test
