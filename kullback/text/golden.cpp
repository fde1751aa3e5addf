#include "kullback/text/golden.h"

#include <algorithm>

#include <fmt/format.h>

namespace kullback {
namespace {

using Ids = std::vector<std::int32_t>;

std::string compared(const char* what, const Ids& ours, const Ids& expected) {
  if (ours == expected) return "";
  const auto place = std::mismatch(ours.begin(), ours.end(), expected.begin(), expected.end());
  const auto at = place.first - ours.begin();
  const auto shown = [at](const Ids& ids) {
    return at < static_cast<std::ptrdiff_t>(ids.size()) ? std::to_string(ids[static_cast<std::size_t>(at)])
                                                        : std::string("the end");
  };
  return fmt::format("{}[{}] is {}, expected {}", what, at, shown(ours), shown(expected));
}

std::string compared(const char* what, const std::string& ours, const std::string& expected) {
  if (ours == expected) return "";
  return fmt::format("{} is {}, expected {}", what, Json(ours).dump(-1, ' ', true, Json::error_handler_t::replace),
                     Json(expected).dump());
}

std::string compared_offsets(const std::vector<ByteRange>& ours, const Json& expected) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const Json both = {ours[i].begin, ours[i].end};
    if (i >= expected.size() || both != expected[i]) {
      return fmt::format("offsets[{}] is {}, expected {}", i, both.dump(),
                         i < expected.size() ? expected[i].dump() : "the end");
    }
  }
  return "";
}

}  // namespace

std::string golden_difference(const Tokenizer& tokenizer, const Json& one) {
  const auto text = one.at("text").get<std::string>();
  const Encoding encoding = tokenizer.encode_with_ranges(text);
  std::string difference = compared("ids", encoding.ids, one.at("ids").get<Ids>());
  if (difference.empty() && one.contains("offsets"))
    difference = compared_offsets(tokenizer.offsets(text, encoding), one["offsets"]);
  const Ids together = one.contains("ids_with_special") ? tokenizer.put_together(encoding.ids).ids : encoding.ids;
  if (difference.empty() && one.contains("ids_with_special")) {
    difference = compared("ids_with_special", together, one["ids_with_special"].get<Ids>());
  }
  const bool decodes = one.contains("decoded") || one.contains("decoded_skip_special");
  if (difference.empty() && !decodes) difference = compared("decoded", tokenizer.decode(encoding.ids), text);
  if (one.value("normalized_added", false)) return difference;
  if (difference.empty() && one.contains("decoded")) {
    difference = compared("decoded", tokenizer.decode_text(together), one["decoded"].get<std::string>());
  }
  if (difference.empty() && one.contains("decoded_skip_special")) {
    difference = compared("decoded_skip_special", tokenizer.decode_text(together, true),
                          one["decoded_skip_special"].get<std::string>());
  }
  return difference;
}

std::string golden_pair_difference(const Tokenizer& tokenizer, const Json& one) {
  const auto both = tokenizer.put_together(tokenizer.encode(one.at("text").get<std::string>()),
                                           tokenizer.encode(one.at("pair").get<std::string>()));
  const std::string difference = compared("ids_with_special", both.ids, one.at("ids_with_special").get<Ids>());
  return difference.empty() ? compared("type_ids", both.type_ids, one.at("type_ids").get<Ids>()) : difference;
}

}  // namespace kullback
