// libFuzzer target: any text comes back from its ids as it was, and any Jinja template is recognised or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kullback/base/error.h"
#include "kullback/text/byte_alphabet.h"
#include "kullback/text/chat_template.h"
#include "kullback/text/tokenizer.h"

namespace {

using namespace kullback;

Tokenizer invented(const char* pre_tokenizer) {
  BpeSpec spec;
  spec.name = "invented";
  spec.pre_tokenizer = pre_tokenizer;
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  spec.merges = {"a b", "Ġ Ġ", "Ġ a", "ĠĠ ĠĠ", "Ã ©", "ab ab", "1 2"};
  for (const std::string& merge : spec.merges) {
    const auto space = merge.find(' ');
    spec.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  spec.types.assign(spec.tokens.size(), 1);
  for (const char* token : {"<|a|>", "<|a|>b", "<"}) {
    spec.tokens.emplace_back(token);
    spec.types.push_back(3);
  }
  return Tokenizer(spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Tokenizer> tokenizers{invented("gpt-2"), invented("smollm"), invented("llama-bpe"),
                                                 invented("tekken")};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Tokenizer& tokenizer : tokenizers) {
    if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
    if (tokenizer.decode(tokenizer.encode(text, false)) != text) std::abort();
  }
  try {
    const std::vector<Message> messages{{"user", "a"}, {"assistant", "b"}};
    ChatTemplate::recognise(text, "fuzz").render(messages, true);
  } catch (const Error&) {
  }
  return 0;
}
