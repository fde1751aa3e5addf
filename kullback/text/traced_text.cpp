#include "kullback/text/traced_text.h"

#include <algorithm>

#include "kullback/text/utf8.h"

namespace kullback {

ByteRange TracedText::origin(ByteRange range) const {
  if (origins_.empty()) return {base_ + range.begin, base_ + range.end};
  if (range.begin >= origins_.size()) return {origins_.back().end, origins_.back().end};
  ByteRange whole = origins_[range.begin];
  for (std::size_t i = range.begin; i < range.end; ++i) {
    whole.begin = std::min(whole.begin, origins_[i].begin);
    whole.end = std::max(whole.end, origins_[i].end);
  }
  return range.size() == 0 ? ByteRange{whole.begin, whole.begin} : whole;
}

TracedText TracedText::part(ByteRange range) const {
  TracedText out(std::string_view(text_).substr(range.begin, range.size()), base_ + range.begin);
  if (!origins_.empty()) {
    const auto begin = origins_.begin() + static_cast<std::ptrdiff_t>(range.begin);
    out.origins_.assign(begin, begin + static_cast<std::ptrdiff_t>(range.size()));
  }
  return out;
}

void TracedText::append(std::string_view text, ByteRange origin) {
  text_ += text;
  origins_.insert(origins_.end(), text.size(), origin);
}

Section::Section(TracedText whole, bool first) : text(std::move(whole)), at_start(first) {
  const std::string_view bytes = text.text();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    at += valid_prefix(bytes.substr(at));
    if (at > begin) pieces.push_back({{begin, at}, true});
    const std::size_t invalid = at;
    while (at < bytes.size() && !code_point_at(bytes, at).valid) ++at;
    if (at > invalid) pieces.push_back({{invalid, at}, false});
  }
}

}  // namespace kullback
