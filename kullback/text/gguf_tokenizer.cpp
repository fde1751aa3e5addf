// Tokenizers as GGUF files carry them: lists of tokens, with merges or scores, and a name for the way text is split.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "kullback/base/error.h"
#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

std::vector<std::pair<std::string, std::string>> split_merges(const BpeSpec& spec) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(spec.merges.size());
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string& merge = spec.merges[i];
    // The alphabet has no space, but the first symbol could be one all the same: the space that divides stands later.
    const auto space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      fail("{}: merge {} (\"{}\") is not two tokens with a space between", spec.name, i, merge);
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return merges;
}

/// A beginning and an end around each text, where there are such.
PostProcessor around(std::optional<std::int32_t> begin, std::optional<std::int32_t> end) {
  PostProcessor out;
  out.byte_level = true;
  if (!begin && !end) return out;
  for (const std::int32_t type : {0, 1}) {
    const auto kind = type == 0 ? TemplateItem::Kind::first : TemplateItem::Kind::second;
    if (begin) out.pair.push_back({TemplateItem::Kind::special, {*begin}, type});
    out.pair.push_back({kind, {}, type});
    if (end) out.pair.push_back({TemplateItem::Kind::special, {*end}, type});
    if (type == 0) out.single = out.pair;
  }
  return out;
}

constexpr std::int64_t type_normal = 1, type_unknown = 2, type_control = 3, type_user_defined = 4;

/// Control tokens and the unknown one are special; what users defined is found in the text as well.
std::vector<AddedToken> added_tokens(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& types) {
  std::vector<AddedToken> added;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const bool special = types[i] == type_control || types[i] == type_unknown;
    if (!special && types[i] != type_user_defined) continue;
    AddedToken token;
    token.id = static_cast<std::int32_t>(i);
    token.content = tokens[i];
    token.special = special;
    added.push_back(std::move(token));
  }
  return added;
}

template <class Spec>
void check_types(const Spec& spec) {
  if (spec.tokens.empty()) fail("{}: the vocabulary is empty", spec.name);
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    fail("{}: {} token types for {} tokens", spec.name, spec.types.size(), spec.tokens.size());
  }
}

TokenizerParts parts_of(const BpeSpec& spec) {
  check_types(spec);
  GgufPreTokenizer pre = gguf_pre_tokenizer(spec.pre_tokenizer);
  TokenizerParts parts;
  BpeModel model;
  model.tokens = spec.tokens;
  model.merges = split_merges(spec);
  model.ignore_merges = pre.ignore_merges;
  parts.model = std::move(model);
  parts.decoder = {ByteLevelDecoder{}};
  if (pre.compose) parts.normalizer.push_back(UnicodeForm{true, false});
  if (spec.add_prefix_space) pre.steps.insert(pre.steps.begin(), ByteLevel{true, false});
  parts.pre_tokenizer = std::move(pre.steps);
  parts.added = added_tokens(spec.tokens, spec.types);
  parts.special = spec.special;
  const std::optional<std::int32_t> none;
  parts.post_processor = around(spec.add_bos.value_or(pre.add_bos) ? spec.special.bos : none,
                                spec.add_eos.value_or(false) ? spec.special.eos : none);
  return parts;
}

/// Every way to put a piece together from two others, the most probable pieces first: sentencepiece merges whatever pair makes
/// the piece of the highest score.
std::vector<std::pair<std::string, std::string>> merges_of(const SentencePieceSpec& spec) {
  std::unordered_set<std::string_view> known(spec.tokens.begin(), spec.tokens.end());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const bool normal = spec.types.empty() || spec.types[i] == type_normal || spec.types[i] == type_user_defined;
    if (normal) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return spec.scores[a] > spec.scores[b]; });
  std::vector<std::pair<std::string, std::string>> merges;
  for (const std::size_t i : order) {
    const std::string_view piece = spec.tokens[i];
    for (std::size_t at = 1; at < piece.size(); ++at) {
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      if (known.contains(left) && known.contains(right)) merges.emplace_back(left, right);
    }
  }
  return merges;
}

TokenizerParts parts_of(const SentencePieceSpec& spec) {
  check_types(spec);
  if (spec.scores.size() != spec.tokens.size())
    fail("{}: {} scores for {} tokens", spec.name, spec.scores.size(), spec.tokens.size());
  const std::string visible = "\u2581";
  BpeModel model;
  model.tokens = spec.tokens;
  model.merges = merges_of(spec);
  model.byte_level = false;
  model.byte_fallback = true;
  model.fuse_unknown = true;
  if (spec.special.unknown && *spec.special.unknown >= 0 &&
      static_cast<std::size_t>(*spec.special.unknown) < spec.tokens.size()) {
    model.unknown = spec.tokens[static_cast<std::size_t>(*spec.special.unknown)];
  }
  TokenizerParts parts;
  parts.model = std::move(model);
  parts.added = added_tokens(spec.tokens, spec.types);
  if (spec.add_space_prefix) parts.normalizer.emplace_back(Prepend{visible});
  parts.normalizer.emplace_back(Replace{Pattern::literal(" "), visible});
  parts.decoder = {ReplaceDecoder{{Pattern::literal(visible), " "}}, ByteFallbackDecoder{}, FuseDecoder{}};
  if (spec.add_space_prefix) parts.decoder.emplace_back(StripDecoder{" ", 1, 0});
  parts.special = spec.special;
  const std::optional<std::int32_t> none;
  parts.post_processor = around(spec.add_bos.value_or(true) ? spec.special.bos : none,
                                spec.add_eos.value_or(false) ? spec.special.eos : none);
  parts.post_processor.byte_level = false;
  return parts;
}

}  // namespace

Tokenizer::Tokenizer(const BpeSpec& spec) : Tokenizer(parts_of(spec), spec.name) {}
Tokenizer::Tokenizer(const SentencePieceSpec& spec) : Tokenizer(parts_of(spec), spec.name) {}

}  // namespace kullback
