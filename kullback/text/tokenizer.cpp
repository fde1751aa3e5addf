#include "kullback/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "kullback/base/error.h"
#include "kullback/text/byte_alphabet.h"

namespace kullback {

/// A tokenizer's parts with what is derived from them.
struct Tokenizer::Made {
  TokenizerParts parts;
  Bpe model;
  AddedTokens raw, normalized;            // looked for before and after normalisation
  std::unordered_map<std::string, std::int32_t> added_ids;
  std::vector<std::string> bytes;         // of every id
  std::vector<bool> special;              // of every id

  Made(TokenizerParts given, std::string_view name);
  void encode_stretch(TracedText text, bool at_start, Encoding& out) const;
  void encode_between(const TracedText& text, bool at_start, bool special, Encoding& out) const;
};

namespace {

std::vector<AddedToken> where(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> out;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) out.push_back(token);
  }
  return out;
}

/// Added tokens with `normalized` are looked for as the normaliser writes them.
std::vector<AddedToken> as_normalized(std::vector<AddedToken> tokens, const std::vector<NormalizerStep>& steps) {
  for (AddedToken& token : tokens) token.content = normalize(steps, TracedText(token.content, 0)).text();
  return tokens;
}

void check_special_ids(const TokenizerParts& parts, std::int64_t size, std::string_view name) {
  const auto check = [&](std::int64_t id, std::string_view what) {
    if (id < 0 || id >= size) fail("{}: {} has the id {}, and the vocabulary has {} tokens", name, what, id, size);
  };
  if (parts.special.bos) check(*parts.special.bos, "the token for the beginning of a text");
  if (parts.special.eos) check(*parts.special.eos, "the token for the end of a text");
  if (parts.special.pad) check(*parts.special.pad, "the padding token");
  if (parts.special.unknown) check(*parts.special.unknown, "the token for unknown text");
  for (const auto* ids : {&parts.prefix, &parts.suffix}) {
    for (const std::int32_t id : *ids) check(id, "a token that goes around texts");
  }
}

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

constexpr std::int64_t type_unknown = 2, type_control = 3, type_user_defined = 4;

TokenizerParts parts_of(const BpeSpec& spec) {
  if (spec.tokens.empty()) fail("{}: the vocabulary is empty", spec.name);
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    fail("{}: {} token types for {} tokens", spec.name, spec.types.size(), spec.tokens.size());
  }
  GgufPreTokenizer pre = gguf_pre_tokenizer(spec.pre_tokenizer);
  TokenizerParts parts;
  parts.model.tokens = spec.tokens;
  parts.model.merges = split_merges(spec);
  parts.model.ignore_merges = pre.ignore_merges;
  if (pre.compose) parts.normalizer.push_back(UnicodeForm{true, false});
  if (spec.add_prefix_space) pre.steps.insert(pre.steps.begin(), ByteLevel{true, false});
  parts.pre_tokenizer = std::move(pre.steps);
  for (std::size_t i = 0; i < spec.types.size(); ++i) {
    const bool special = spec.types[i] == type_control || spec.types[i] == type_unknown;
    if (special || spec.types[i] == type_user_defined) {
      AddedToken token;
      token.id = static_cast<std::int32_t>(i);
      token.content = spec.tokens[i];
      token.special = special;
      parts.added.push_back(std::move(token));
    }
  }
  parts.special = spec.special;
  if (spec.add_bos.value_or(pre.add_bos) && spec.special.bos) parts.prefix = {*spec.special.bos};
  if (spec.add_eos.value_or(false) && spec.special.eos) parts.suffix = {*spec.special.eos};
  return parts;
}

}  // namespace

Tokenizer::Made::Made(TokenizerParts given, std::string_view name)
    : parts(std::move(given)),
      model(parts.model, name),
      raw(where(parts.added, false)),
      normalized(as_normalized(where(parts.added, true), parts.normalizer)) {
  bytes.reserve(parts.model.tokens.size());
  for (const std::string& token : parts.model.tokens) {
    // A token with a letter that is not in the alphabet was added as plain text.
    bytes.push_back(parts.model.byte_level ? from_byte_alphabet(token).value_or(token) : token);
  }
  special.assign(bytes.size(), false);
  for (const AddedToken& token : parts.added) {
    if (token.id < 0) fail("{}: added token \"{}\" has the id {}", name, token.content, token.id);
    const auto id = static_cast<std::size_t>(token.id);
    if (id > parts.model.tokens.size() + parts.added.size()) {
      fail("{}: added token \"{}\" has the id {}, far beyond the vocabulary", name, token.content, token.id);
    }
    if (id >= bytes.size()) {
      bytes.resize(id + 1);
      special.resize(id + 1);
    }
    bytes[id] = token.content;
    special[id] = token.special;
    added_ids.emplace(token.content, token.id);
  }
  check_special_ids(parts, static_cast<std::int64_t>(bytes.size()), name);
}

/// Text without added tokens in it, already normalised.
void Tokenizer::Made::encode_stretch(TracedText text, bool at_start, Encoding& out) const {
  if (text.text().empty()) return;
  Section section(std::move(text), at_start);
  pre_tokenize(parts.pre_tokenizer, section);
  static thread_local std::vector<TokenSpan> tokens;
  const std::string_view bytes_of_section = section.text.text();
  for (const Piece& piece : section.pieces) {
    tokens.clear();
    model.encode(bytes_of_section.substr(piece.range.begin, piece.range.size()), tokens);
    for (const TokenSpan& token : tokens) {
      out.ids.push_back(token.id);
      out.ranges.push_back(section.text.origin({piece.range.begin + token.begin, piece.range.begin + token.end}));
    }
  }
}

/// Normalised text in which added tokens are still to be found.
void Tokenizer::Made::encode_between(const TracedText& text, bool at_start, bool parse_special, Encoding& out) const {
  std::size_t done = 0;
  const auto stretch = [&](std::size_t end) {
    if (end > done) encode_stretch(text.part({done, end}), at_start && done == 0, out);
  };
  for (const AddedTokens::Match& match : normalized.find(text.text(), parse_special)) {
    stretch(match.range.begin);
    out.ids.push_back(match.id);
    out.ranges.push_back(text.origin(match.range));
    done = match.range.end;
  }
  stretch(text.text().size());
}

Tokenizer::Tokenizer(TokenizerParts parts, std::string_view name) : made_(std::make_shared<const Made>(std::move(parts), name)) {}

Tokenizer::Tokenizer(const BpeSpec& spec) : Tokenizer(parts_of(spec), spec.name) {}

Encoding Tokenizer::encode_with_ranges(std::string_view text, bool parse_special) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) fail("a text of {} bytes is too long to be encoded at once", text.size());
  Encoding out;
  std::size_t done = 0;
  const auto between = [&](std::size_t end) {
    if (end == done) return;
    const TracedText stretch(text.substr(done, end - done), done);
    made_->encode_between(normalize(made_->parts.normalizer, stretch), done == 0, parse_special, out);
  };
  for (const AddedTokens::Match& match : made_->raw.find(text, parse_special)) {
    between(match.range.begin);
    out.ids.push_back(match.id);
    out.ranges.push_back(match.range);
    done = match.range.end;
  }
  between(text.size());
  return out;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return encode_with_ranges(text, parse_special).ids;
}

std::vector<std::int32_t> Tokenizer::add_special(std::vector<std::int32_t> ids) const {
  const std::vector<std::int32_t>& prefix = made_->parts.prefix;
  const std::vector<std::int32_t>& suffix = made_->parts.suffix;
  const bool begun = ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!begun) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  const bool ended = ids.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), ids.rbegin());
  if (!ended) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= made_->bytes.size()) {
    fail("token id {} is not in the vocabulary of {} tokens", id, made_->bytes.size());
  }
  return made_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (!skip_special || !is_special(id)) text += token_bytes(id);
  }
  return text;
}

std::int64_t Tokenizer::vocabulary_size() const { return static_cast<std::int64_t>(made_->bytes.size()); }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view text) const {
  const auto found = made_->added_ids.find(std::string(text));
  if (found != made_->added_ids.end()) return found->second;
  return made_->model.token_id(text);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < made_->special.size() && made_->special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::bos() const { return made_->parts.special.bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return made_->parts.special.eos; }
std::optional<std::int32_t> Tokenizer::pad() const { return made_->parts.special.pad; }
std::optional<std::int32_t> Tokenizer::unknown() const { return made_->parts.special.unknown; }
const TokenizerParts& Tokenizer::parts() const { return made_->parts; }

}  // namespace kullback
