// libFuzzer target: no bytes may crash the safetensors reader.
#include <cstddef>
#include <cstdint>

#include "kullback/base/error.h"
#include "kullback/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kullback;
  try {
    const SafetensorsFile file = SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
    unsigned sum = 0;
    for (const TensorBytes& tensor : file.tensors()) {
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
    }
    static volatile unsigned sink;
    sink = sum;
  } catch (const Error&) {
  }
  return 0;
}
