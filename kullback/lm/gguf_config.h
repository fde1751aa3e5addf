#pragma once

#include <string>

#include "kullback/io/gguf.h"
#include "kullback/io/gguf_write.h"
#include "kullback/lm/config.h"

namespace kullback {

/// What llama.cpp calls a family (`general.architecture`), and the other way round; empty when there is no such.
std::string gguf_architecture(const std::string& model_type);
std::string family_of_architecture(const std::string& architecture);

/// A GGUF file's settings. Throws an Error naming the file and the key for a family or setting that is not supported.
Config config_from_gguf(const GgufFile& file);

/// The rotary frequencies' divisors, which Llama 3.1 and its descendants keep as a tensor `rope_freqs.weight`. [d / 2]
std::vector<float> rope_divisors(const Config& config);

}  // namespace kullback
