#include "kullback/text/traced_text.h"

#include <algorithm>

#include "kullback/text/utf8.h"

namespace kullback {

ByteRange TracedText::origin(ByteRange range) const {
  if (!own_origins_) return {base_ + range.begin, base_ + range.end};
  if (origins_.empty()) return {0, 0};
  if (range.begin >= origins_.size()) return {origins_.back().end, origins_.back().end};
  ByteRange whole = origins_[range.begin];
  for (std::size_t i = range.begin; i < range.end; ++i) {
    whole.begin = std::min(whole.begin, origins_[i].begin);
    whole.end = std::max(whole.end, origins_[i].end);
  }
  return range.size() == 0 ? ByteRange{whole.begin, whole.begin} : whole;
}

TracedText TracedText::part(ByteRange range) const {
  TracedText out(std::string_view(text_).substr(range.begin, range.size()), base_ + range.begin, traced_);
  out.own_origins_ = own_origins_;
  if (!origins_.empty()) {
    const auto begin = origins_.begin() + static_cast<std::ptrdiff_t>(range.begin);
    out.origins_.assign(begin, begin + static_cast<std::ptrdiff_t>(range.size()));
  }
  return out;
}

TracedText TracedText::rewritten() const {
  TracedText out("", base_, traced_);
  out.own_origins_ = true;
  out.text_.reserve(text_.size() + 16);
  return out;
}

void TracedText::append(std::string_view text, const TracedText& from, ByteRange source) {
  text_ += text;
  if (traced_) origins_.insert(origins_.end(), text.size(), from.origin(source));
}

void TracedText::append(const std::vector<Changed>& characters, const TracedText& from, ByteRange source) {
  std::size_t next = source.begin;
  ByteRange last{source.begin, source.begin};
  const auto use_up = [&] {
    if (next >= source.end) return;
    last = {next, next + code_point_at(from.text_, next).size};
    next = last.end;
  };
  std::string encoded;
  for (const Changed& c : characters) {
    if (c.change <= 0) use_up();
    encoded.clear();
    append_utf8(encoded, c.value);
    append(encoded, from, last);
    for (int i = c.change; i < 0; ++i) use_up();
  }
}

void TracedText::append_same(const TracedText& from, ByteRange range) {
  text_ += std::string_view(from.text_).substr(range.begin, range.size());
  if (!traced_) return;
  // All bytes of a character carry the character's origin.
  for (std::size_t at = range.begin; at < range.end;) {
    const std::size_t size = code_point_at(from.text_, at).size;
    origins_.insert(origins_.end(), size, from.origin({at, at + size}));
    at += size;
  }
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
