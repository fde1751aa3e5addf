#include "kullback/text/added_tokens.h"

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

/// The code point that ends at byte `end`; nothing at the beginning of the text, or after an invalid byte.
CodePoint code_point_before(std::string_view text, std::size_t end) {
  for (std::size_t size = 1; size <= 4 && size <= end; ++size) {
    const CodePoint point = code_point_at(text, end - size);
    if (point.valid && point.size == size) return point;
  }
  return {0, 0, false};
}

bool stands_alone(std::string_view text, ByteRange range) {
  const CodePoint before = code_point_before(text, range.begin);
  const CodePoint after = code_point_at(text, range.end);
  return !(before.valid && is_word(before.value)) && !(after.valid && is_word(after.value));
}

ByteRange with_white_space(std::string_view text, ByteRange range, const AddedToken& token, std::size_t taken) {
  while (token.lstrip && range.begin > taken) {
    const CodePoint before = code_point_before(text.substr(taken), range.begin - taken);
    if (!before.valid || !is_space(before.value)) break;
    range.begin -= before.size;
  }
  while (token.rstrip) {
    const CodePoint after = code_point_at(text, range.end);
    if (!after.valid || !is_space(after.value)) break;
    range.end += after.size;
  }
  return range;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) : tokens_(tokens) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    contents_.insert(content, static_cast<std::int32_t>(i));
    begins_[static_cast<unsigned char>(content[0])] = true;
  }
}

const AddedToken* AddedTokens::longest(std::string_view text, std::size_t at, bool special) const {
  const AddedToken* found = nullptr;
  contents_.each_at(text, at, [&](std::int32_t place, std::size_t) {
    const AddedToken& token = tokens_[static_cast<std::size_t>(place)];
    if (special || !token.special) found = &token;
  });
  return found;
}

std::vector<AddedTokens::Match> AddedTokens::find(std::string_view text, bool special) const {
  std::vector<Match> matches;
  if (empty()) return matches;
  std::size_t taken = 0;  // end of the last match
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = begins_[static_cast<unsigned char>(text[at])] ? longest(text, at, special) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    const ByteRange range{at, at + token->content.size()};
    at = range.end;
    // One that fails is dropped, with no second try for a shorter token at the same place: so does the tokenizers library.
    if (token->single_word && !stands_alone(text, range)) continue;
    const ByteRange whole = with_white_space(text, range, *token, taken);
    matches.push_back({token->id, whole});
    at = taken = whole.end;
  }
  return matches;
}

}  // namespace kullback
