// libFuzzer target: any text comes back from its ids as it was, and any Jinja template is recognised or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kullback/base/error.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/text/chat_template.h"
#include "kullback/text/tokenizer.h"

namespace {

using namespace kullback;

Tokenizer invented(const char* pre_tokenizer) {
  return Tokenizer(byte_level_spec("invented", {"a b", "Ġ Ġ", "Ġ a", "ĠĠ ĠĠ", "Ã ©", "ab ab", "1 2"},
                                   {"<|a|>", "<|a|>b", "<"}, pre_tokenizer));
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
