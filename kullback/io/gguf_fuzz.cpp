// libFuzzer target: no bytes may crash the GGUF reader, or make it allocate what the file could not justify.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kullback/base/error.h"
#include "kullback/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kullback;
  try {
    const GgufFile file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
    std::vector<float> numbers;
    for (const GgufTensor& tensor : file.tensors()) {
      numbers.resize(static_cast<std::size_t>(tensor.elements));
      dequantize(tensor, numbers);
    }
    for (const auto& [key, value] : file.metadata().values()) {
      if (value.is_array && value.type == GgufType::string) file.metadata().strings(key);
      if (!value.is_array && value.type == GgufType::string) file.metadata().string(key);
      if (!value.is_array && value.type == GgufType::boolean) file.metadata().boolean(key);
      if (value.type == GgufType::string || value.type == GgufType::boolean) continue;
      if (value.is_array)
        file.metadata().numbers(key);
      else
        file.metadata().number(key);
    }
  } catch (const Error&) {
  }
  return 0;
}
