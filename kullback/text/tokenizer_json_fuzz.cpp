// libFuzzer target: a tokenizer.json is read or refused, whatever is in it; what is read encodes and writes itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kullback/base/error.h"
#include "kullback/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kullback;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "", "fuzz.json");
    for (const char* text : {"", "ab c", "  \xc3\xa9\xff\n<s> 12 don't", "\xe4\xb8\xad\xe6\x96\x87"}) {
      const Encoding encoding = tokenizer.encode_with_ranges(text);
      tokenizer.offsets(text, encoding);
      tokenizer.decode(tokenizer.put_together(encoding.ids, encoding.ids).ids);
      tokenizer.decode_text(tokenizer.add_special(encoding.ids), true);
    }
    tokenizer.to_json();
  } catch (const Error&) {
  }
  return 0;
}
