// libFuzzer target: a PEFT adapter, adapter_config.json and adapter_model.safetensors with a zero byte between, is read or
// refused, whatever is in it; every tensor that is found has the bytes of its shape.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kullback/base/error.h"
#include "kullback/lm/adapter_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kullback;
  static const std::vector<AdaptableModule> modules = {{"model.layers.0.self_attn.q_proj", 6, 4},
                                                       {"model.layers.0.mlp.down_proj", 4, 8},
                                                       {"model.layers.1.self_attn.q_proj", 6, 4}};
  const std::uint8_t* const end = std::find(data, data + size, 0);
  const std::string_view config(reinterpret_cast<const char*>(data), static_cast<std::size_t>(end - data));
  const std::span<const std::uint8_t> rest(end == data + size ? end : end + 1, data + size);
  try {
    const SafetensorsFile file = SafetensorsFile::parse(std::as_bytes(rest), "adapter_model.safetensors");
    for (const StoredAdapter& adapter : stored_adapters(config, "adapter_config.json", file, modules)) {
      const auto numbers = [](const TensorBytes& tensor) {
        return tensor.bytes.size() / static_cast<std::size_t>(dtype_bytes(tensor.dtype));
      };
      const AdaptableModule& module = modules[adapter.module];
      const auto rank = static_cast<std::size_t>(adapter.rank);
      if (numbers(*adapter.a) != rank * static_cast<std::size_t>(module.in) ||
          numbers(*adapter.b) != rank * static_cast<std::size_t>(module.out))
        std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
