// libFuzzer target: a config.json is read or refused, whatever is in it; what is read is written, and read again as the same.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kullback/base/error.h"
#include "kullback/lm/config.h"

namespace {

using namespace kullback;

void check_rotation(const Rope& rope, const Config& config) {
  for (const int64_t context : {int64_t{0}, config.max_positions, config.max_positions * 2}) {
    for (const double frequency : rope_frequencies(rope, rope.size == 0 ? config.head_size : rope.size, context)) {
      if (std::isnan(frequency)) std::abort();
    }
  }
  rope_magnitude(rope);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return 0;
  try {
    const Config config = config_from_json(json, "config.json");
    check_rotation(config.rope, config);
    if (config.local_rope) check_rotation(*config.local_rope, config);
    const Json written = config_to_json(config);
    if (config_to_json(config_from_json(written, "written.json")) != written) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
