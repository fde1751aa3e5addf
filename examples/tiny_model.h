#pragma once

#include <kullback/lm/model.h>
#include <kullback/text/byte_level_spec.h>

/// A random model that reads bytes: in these programs it stands for load_model("a name, a GGUF file or a Hugging Face folder"),
/// so that they run in a second, anywhere.
inline kullback::Model tiny_model(uint64_t seed) {
  kullback::Config config;
  config.vocabulary_size = 257;
  config.hidden_size = 32, config.layers = 2, config.mlp_size = 64;
  config.heads = 4, config.key_value_heads = 2, config.head_size = 8;
  config.tied_head = true;
  config.bos = config.eos = 256;
  kullback::BpeSpec bytes = kullback::byte_level_spec("tiny", {}, {"<|end|>"});
  bytes.special.bos = bytes.special.eos = 256;
  kullback::Model model;
  model.name = "tiny";
  model.transformer = kullback::random_transformer(config, seed, 0.2);
  model.tokenizer = kullback::Tokenizer(bytes);
  model.generation.stop_ids = {256};
  return model;
}
