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

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) : token_at_node_{-1} {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    std::uint32_t node = 0;
    for (const char c : token.content) {
      const auto byte = static_cast<unsigned char>(c);
      const auto [child, is_new] =
          children_.emplace(std::uint64_t{node} << 8 | byte, static_cast<std::uint32_t>(token_at_node_.size()));
      if (is_new) token_at_node_.push_back(-1);
      node = child->second;
    }
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    if (token_at_node_[node] < 0) {
      token_at_node_[node] = static_cast<std::int64_t>(tokens_.size());
      tokens_.push_back(token);
    }
  }
}

const AddedToken* AddedTokens::longest(std::string_view text, std::size_t at, bool special) const {
  const AddedToken* found = nullptr;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (token_at_node_[node] < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(token_at_node_[node])];
    if (special || !token.special) found = &token;
  }
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
