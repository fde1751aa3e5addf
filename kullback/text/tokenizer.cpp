#include "kullback/text/tokenizer.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_map>

#include <atomic>
#include <thread>

#include "kullback/base/error.h"
#include "kullback/text/byte_alphabet.h"
#include "kullback/text/utf8.h"

namespace kullback {

using Words = std::variant<Bpe, Unigram, WordPiece>;

/// A tokenizer's parts with what is derived from them.
struct Tokenizer::Made {
  TokenizerParts parts;
  Words words;
  bool byte_level;              // tokens are bytes in the byte alphabet
  AddedTokens raw, normalized;  // looked for before and after normalisation
  std::unordered_map<std::string, std::int32_t> added_ids;
  std::vector<std::string> bytes;  // of every id
  std::vector<bool> special;       // of every id

  Made(TokenizerParts given, std::string_view name);
  void encode_stretch(TracedText text, bool at_start, bool ranges, Encoding& out) const;
  void encode_between(const TracedText& text, bool at_start, bool special, bool ranges, Encoding& out) const;
  Encoding encode(std::string_view text, bool special, bool ranges) const;
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
  for (AddedToken& token : tokens) token.content = normalize(steps, TracedText(token.content, 0, false)).text();
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
  for (const auto* items : {&parts.post_processor.single, &parts.post_processor.pair}) {
    for (const TemplateItem& item : *items) {
      for (const std::int32_t id : item.ids) check(id, "a token that goes around texts");
    }
  }
}

Words words_of(const WordModel& model, std::string_view name) {
  if (const auto* bpe = std::get_if<BpeModel>(&model)) return Bpe(*bpe, name);
  if (const auto* unigram = std::get_if<UnigramModel>(&model)) return Unigram(*unigram, name);
  return WordPiece(std::get<WordPieceModel>(model), name);
}

const std::vector<std::string>& tokens_of(const WordModel& model) {
  return std::visit([](const auto& kind) -> const std::vector<std::string>& { return kind.tokens; }, model);
}

bool is_byte_level(const WordModel& model) {
  const auto* bpe = std::get_if<BpeModel>(&model);
  return bpe != nullptr && bpe->byte_level;
}

}  // namespace

Tokenizer::Made::Made(TokenizerParts given, std::string_view name)
    : parts(std::move(given)),
      words(words_of(parts.model, name)),
      byte_level(is_byte_level(parts.model)),
      raw(where(parts.added, false)),
      normalized(as_normalized(where(parts.added, true), parts.normalizer)) {
  const std::vector<std::string>& tokens = tokens_of(parts.model);
  bytes.reserve(tokens.size());
  for (const std::string& token : tokens) {
    // A token with a letter that is not in the alphabet was added as plain text.
    bytes.push_back(byte_level ? from_byte_alphabet(token).value_or(token) : token);
  }
  special.assign(bytes.size(), false);
  for (const AddedToken& token : parts.added) {
    if (token.id < 0) fail("{}: added token \"{}\" has the id {}", name, token.content, token.id);
    const auto id = static_cast<std::size_t>(token.id);
    if (id > 4 * (tokens.size() + parts.added.size())) {
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
void Tokenizer::Made::encode_stretch(TracedText text, bool at_start, bool ranges, Encoding& out) const {
  if (text.text().empty()) return;
  Section section(std::move(text), at_start);
  pre_tokenize(parts.pre_tokenizer, section);
  static thread_local std::vector<TokenSpan> tokens;
  const std::string_view bytes_of_section = section.text.text();
  for (const Piece& piece : section.pieces) {
    tokens.clear();
    const auto word = bytes_of_section.substr(piece.range.begin, piece.range.size());
    std::visit([&](const auto& kind) { kind.encode(word, tokens); }, words);
    for (const TokenSpan& token : tokens) {
      out.ids.push_back(token.id);
      if (ranges)
        out.ranges.push_back(section.text.origin({piece.range.begin + token.begin, piece.range.begin + token.end}));
    }
  }
}

/// Normalised text in which added tokens are still to be found.
void Tokenizer::Made::encode_between(const TracedText& text, bool at_start, bool parse_special, bool ranges,
                                     Encoding& out) const {
  const auto matches = normalized.find(text.text(), parse_special);
  if (matches.empty()) return encode_stretch(text, at_start, ranges, out);
  std::size_t done = 0;
  const auto stretch = [&](std::size_t end) {
    if (end > done) encode_stretch(text.part({done, end}), at_start && done == 0, ranges, out);
  };
  for (const AddedTokens::Match& match : matches) {
    stretch(match.range.begin);
    out.ids.push_back(match.id);
    if (ranges) out.ranges.push_back(text.origin(match.range));
    done = match.range.end;
  }
  stretch(text.text().size());
}

Encoding Tokenizer::Made::encode(std::string_view text, bool parse_special, bool ranges) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max())
    fail("a text of {} bytes is too long to be encoded at once", text.size());
  Encoding out;
  std::size_t done = 0;
  const auto between = [&](std::size_t end) {
    if (end == done) return;
    const TracedText stretch(text.substr(done, end - done), done, ranges);
    encode_between(normalize(parts.normalizer, stretch), done == 0, parse_special, ranges, out);
  };
  for (const AddedTokens::Match& match : raw.find(text, parse_special)) {
    between(match.range.begin);
    out.ids.push_back(match.id);
    if (ranges) out.ranges.push_back(match.range);
    done = match.range.end;
  }
  between(text.size());
  return out;
}

Tokenizer::Tokenizer(TokenizerParts parts, std::string_view name)
    : made_(std::make_shared<const Made>(std::move(parts), name)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return made_->encode(text, parse_special, false).ids;
}

Encoding Tokenizer::encode_with_ranges(std::string_view text, bool parse_special) const {
  return made_->encode(text, parse_special, true);
}

std::vector<std::vector<std::int32_t>> Tokenizer::encode_all(std::span<const std::string> texts, bool parse_special,
                                                             int threads) const {
  std::vector<std::vector<std::int32_t>> out(texts.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> problems(texts.size());
  const auto work = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) {
      try {
        out[i] = encode(texts[i], parse_special);
      } catch (...) {
        problems[i] = std::current_exception();
      }
    }
  };
  const std::size_t wanted =
      threads > 0 ? static_cast<std::size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(wanted, texts.size()); ++i) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
  return out;
}

std::vector<std::int32_t> Tokenizer::add_special(std::vector<std::int32_t> ids) const {
  std::vector<std::int32_t> prefix, suffix;
  bool before = true;
  for (const TemplateItem& item : made_->parts.post_processor.single) {
    if (item.kind == TemplateItem::Kind::first)
      before = false;
    else
      (before ? prefix : suffix).insert((before ? prefix : suffix).end(), item.ids.begin(), item.ids.end());
  }
  const bool begun = ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!begun) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  const bool ended = ids.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), ids.rbegin());
  if (!ended) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

Tokenizer::Together Tokenizer::put_together(std::span<const std::int32_t> first) const {
  Together out;
  const auto& items = made_->parts.post_processor.single;
  if (items.empty()) out.ids.assign(first.begin(), first.end());
  for (const TemplateItem& item : items) {
    const std::span<const std::int32_t> ids = item.kind == TemplateItem::Kind::special ? item.ids : first;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.type_ids.resize(out.ids.size(), item.type_id);
  }
  out.type_ids.resize(out.ids.size(), 0);
  return out;
}

Tokenizer::Together Tokenizer::put_together(std::span<const std::int32_t> first,
                                            std::span<const std::int32_t> second) const {
  std::vector<TemplateItem> items = made_->parts.post_processor.pair;
  if (items.empty()) items = {{TemplateItem::Kind::first, {}, 0}, {TemplateItem::Kind::second, {}, 1}};
  Together out;
  for (const TemplateItem& item : items) {
    std::span<const std::int32_t> ids = item.ids;
    if (item.kind == TemplateItem::Kind::first) ids = first;
    if (item.kind == TemplateItem::Kind::second) ids = second;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.type_ids.resize(out.ids.size(), item.type_id);
  }
  return out;
}

namespace {

struct Ends {
  std::size_t leading, trailing;
};

/// Characters of white space at both ends; all of a text that has nothing else counts as both. Of the bytes of a token only
/// the space counts: the byte alphabet spells all others visibly.
Ends spaces_at_ends(std::string_view text, bool token_bytes) {
  Ends ends{0, 0};
  bool only_spaces = true;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const bool space = point.valid && (token_bytes ? point.value == ' ' : is_space(point.value));
    only_spaces = only_spaces && space;
    if (only_spaces) ++ends.leading;
    ends.trailing = space ? ends.trailing + 1 : 0;
    at += point.size;
  }
  return ends;
}

}  // namespace

std::vector<ByteRange> Tokenizer::offsets(std::string_view text, const Encoding& encoding) const {
  std::vector<std::size_t> code_points(text.size() + 1);  // before each byte
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point_at(text, at).size;
    for (std::size_t i = 0; i < size; ++i) code_points[at + i] = count;
    at += size;
    ++count;
  }
  code_points[text.size()] = count;
  std::vector<ByteRange> out;
  const PostProcessor& post = made_->parts.post_processor;
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    const ByteRange bytes = encoding.ranges[i];
    ByteRange range{code_points[bytes.begin],
                    bytes.size() == 0 ? code_points[bytes.end] : code_points[bytes.end - 1] + 1};
    if (post.trim_offsets) {
      const std::string& token = made_->bytes[static_cast<std::size_t>(encoding.ids[i])];
      const auto added = made_->added_ids.find(token);
      const bool is_added = added != made_->added_ids.end() && added->second == encoding.ids[i];
      // An added token counts with the white space that it took.
      auto [leading, trailing] = is_added ? spaces_at_ends(text.substr(bytes.begin, bytes.size()), false)
                                          : spaces_at_ends(token, made_->byte_level);
      // One space at the beginning may be the one that was put there, which takes up nothing of the text.
      if (leading == 1 && post.add_prefix_space && (i == 0 || range.begin == 0)) leading = 0;
      range.begin = std::min(range.begin + leading, range.end);
      if (trailing > 0 && range.end >= trailing) range.end = std::max(range.end - trailing, range.begin);
    }
    out.push_back(range);
  }
  return out;
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= made_->bytes.size()) {
    fail("token id {} is not in the vocabulary of {} tokens", id, made_->bytes.size());
  }
  return made_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special, bool exact) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    std::string token = token_bytes(id);
    if (!skip_special || !is_special(id)) tokens.push_back(std::move(token));
  }
  if (made_->parts.decoder.empty()) {
    for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }
  return decode_tokens(made_->parts.decoder, std::move(tokens), exact);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  return decode(ids, skip_special, true);
}
std::string Tokenizer::decode_text(std::span<const std::int32_t> ids, bool skip_special) const {
  return decode(ids, skip_special, false);
}

std::int64_t Tokenizer::vocabulary_size() const { return static_cast<std::int64_t>(made_->bytes.size()); }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view text) const {
  const auto found = made_->added_ids.find(std::string(text));
  if (found != made_->added_ids.end()) return found->second;
  return std::visit([&](const auto& kind) { return kind.token_id(text); }, made_->words);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < made_->special.size() &&
         made_->special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::bos() const { return made_->parts.special.bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return made_->parts.special.eos; }
std::optional<std::int32_t> Tokenizer::pad() const { return made_->parts.special.pad; }
std::optional<std::int32_t> Tokenizer::unknown() const { return made_->parts.special.unknown; }
const TokenizerParts& Tokenizer::parts() const { return made_->parts; }

}  // namespace kullback
