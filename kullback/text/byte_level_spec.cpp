#include "kullback/text/byte_level_spec.h"

#include <utility>

#include "kullback/text/byte_alphabet.h"

namespace kullback {

BpeSpec byte_level_spec(std::string name, std::vector<std::string> merges, const std::vector<std::string>& controls,
                        std::string pre_tokenizer) {
  BpeSpec spec;
  spec.name = std::move(name);
  spec.pre_tokenizer = std::move(pre_tokenizer);
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const std::string& merge : merges) {
    const auto space = merge.find(' ', 1);
    spec.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  spec.merges = std::move(merges);
  spec.types.assign(spec.tokens.size(), 1);
  spec.tokens.insert(spec.tokens.end(), controls.begin(), controls.end());
  spec.types.resize(spec.tokens.size(), 3);
  return spec;
}

}  // namespace kullback
