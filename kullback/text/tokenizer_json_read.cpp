// tokenizer.json as the tokenizers library writes it (its own serialisation of each part), and tokenizer_config.json.
#include <algorithm>
#include <limits>
#include <set>

#include "kullback/base/error.h"
#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

// Sorted objects: with ordered ones a vocabulary would take time in the square of its size.
using Node = nlohmann::json;

/// A part of the document, with the path that messages name.
struct Part {
  const Node& node;
  std::string path;  // "FILE: model.vocab"

  bool has(const char* key) const { return node.is_object() && node.contains(key) && !node.at(key).is_null(); }
  Part operator[](const char* key) const {
    if (!node.is_object() || !node.contains(key)) fail("{} has no {}", path, key);
    return {node.at(key), path + "." + key};
  }
  std::string text() const {
    if (!node.is_string()) fail("{} is not a text", path);
    return node.get<std::string>();
  }
  std::string text(const char* key, std::string fallback) const {
    return has(key) ? (*this)[key].text() : std::move(fallback);
  }
  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!node.at(key).is_boolean()) fail("{}.{} is neither true nor false", path, key);
    return node.at(key).get<bool>();
  }
  std::int32_t whole() const {
    const bool fits = node.is_number_integer() && node.get<std::int64_t>() >= 0 &&
                      node.get<std::int64_t>() <= std::numeric_limits<std::int32_t>::max();
    if (!fits) fail("{} is not a whole number of at most 31 bits", path);
    return node.get<std::int32_t>();
  }
  std::vector<Part> list() const {
    if (!node.is_array()) fail("{} is not a list", path);
    std::vector<Part> parts;
    for (std::size_t i = 0; i < node.size(); ++i) parts.push_back({node[i], path + "[" + std::to_string(i) + "]"});
    return parts;
  }
  std::string type() const { return (*this)["type"].text(); }
  [[noreturn]] void unknown() const { fail("{} is of type \"{}\", which is not known", path, type()); }
};

/// Regular expressions are checked when they are compiled; the place is then named.
template <class Make>
auto named_fault(const Part& part, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    fail("{}: {}", part.path, error.what());
  }
}

Pattern pattern_of(const Part& part) {
  if (part.has("String")) return Pattern::literal(part["String"].text());
  const std::string expression = part["Regex"].text();
  return named_fault(part, [&] { return Pattern(expression); });
}

Replace replace_of(const Part& part) { return {pattern_of(part["pattern"]), part["content"].text()}; }

/// A Sequence is its steps one after another; null is none.
template <class Step, class Read>
void read_steps(const Part& part, const char* list, std::vector<Step>& out, int depth, Read read) {
  if (part.node.is_null()) return;
  if (depth > 16) fail("{} is nested too deeply", part.path);
  if (part.type() != "Sequence") {
    read(part);
    return;
  }
  for (const Part& inner : part[list].list()) read_steps(inner, list, out, depth + 1, read);
}

std::vector<NormalizerStep> read_normalizer(const Part& whole) {
  std::vector<NormalizerStep> steps;
  read_steps(whole, "normalizers", steps, 0, [&](const Part& part) {
    const std::string type = part.type();
    if (type == "NFC")
      steps.emplace_back(UnicodeForm{true, false});
    else if (type == "NFD")
      steps.emplace_back(UnicodeForm{false, false});
    else if (type == "NFKC")
      steps.emplace_back(UnicodeForm{true, true});
    else if (type == "NFKD")
      steps.emplace_back(UnicodeForm{false, true});
    else if (type == "Prepend")
      steps.emplace_back(Prepend{part["prepend"].text()});
    else if (type == "Replace")
      steps.emplace_back(replace_of(part));
    else if (type == "Strip")
      steps.emplace_back(StripSpace{part.flag("strip_left", true), part.flag("strip_right", true)});
    else if (type == "Lowercase")
      steps.emplace_back(Lowercase{});
    else if (type == "StripAccents")
      steps.emplace_back(StripAccents{});
    else if (type == "Nmt")
      steps.emplace_back(Nmt{});
    else if (type == "Precompiled")
      steps.emplace_back(std::make_shared<const Precompiled>(part.text("precompiled_charsmap", ""), part.path));
    else if (type == "BertNormalizer") {
      BertNormalizer step{part.flag("clean_text", true), part.flag("handle_chinese_chars", true), std::nullopt,
                          part.flag("lowercase", true)};
      if (part.has("strip_accents")) step.strip_accents = part.flag("strip_accents", true);
      steps.emplace_back(step);
    } else
      part.unknown();
  });
  return steps;
}

Split::Behavior behavior_of(const Part& part) {
  const std::string name = part.text();
  if (name == "Isolated") return Split::Behavior::isolated;
  if (name == "Removed") return Split::Behavior::removed;
  if (name == "MergedWithPrevious") return Split::Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Split::Behavior::merged_with_next;
  if (name == "Contiguous") return Split::Behavior::contiguous;
  fail("{} is \"{}\", which is not known", part.path, name);
}

/// Files before 2024 say add_prefix_space instead of prepend_scheme.
Metaspace metaspace_of(const Part& part) {
  Metaspace step;
  step.replacement = part.text("replacement", step.replacement);
  const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always")
    step.prepend = Metaspace::Prepend::always;
  else if (scheme == "first")
    step.prepend = Metaspace::Prepend::first;
  else if (scheme == "never")
    step.prepend = Metaspace::Prepend::never;
  else
    fail("{}.prepend_scheme is \"{}\", which is not known", part.path, scheme);
  step.split = part.flag("split", true);
  return step;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const Part& whole) {
  std::vector<PreTokenizerStep> steps;
  read_steps(whole, "pretokenizers", steps, 0, [&](const Part& part) {
    const std::string type = part.type();
    if (type == "ByteLevel")
      steps.emplace_back(ByteLevel{part.flag("add_prefix_space", true), part.flag("use_regex", true)});
    else if (type == "Split")
      steps.emplace_back(Split{pattern_of(part["pattern"]), behavior_of(part["behavior"]), part.flag("invert", false)});
    else if (type == "Digits")
      steps.emplace_back(Digits{part.flag("individual_digits", false)});
    else if (type == "Metaspace")
      steps.emplace_back(metaspace_of(part));
    else if (type == "WhitespaceSplit")
      steps.emplace_back(WhitespaceSplit{});
    else if (type == "Whitespace")
      steps.emplace_back(Whitespace{});
    else if (type == "Punctuation")
      steps.emplace_back(Punctuation{part.has("behavior") ? behavior_of(part["behavior"]) : Split::Behavior::isolated});
    else if (type == "BertPreTokenizer")
      steps.emplace_back(BertPreTokenizer{});
    else if (type == "CharDelimiterSplit")
      steps.emplace_back(Split{Pattern::literal(part["delimiter"].text()), Split::Behavior::removed, false});
    else
      part.unknown();
  });
  return steps;
}

std::vector<DecoderStep> read_decoder(const Part& whole) {
  std::vector<DecoderStep> steps;
  read_steps(whole, "decoders", steps, 0, [&](const Part& part) {
    const std::string type = part.type();
    if (type == "ByteLevel")
      steps.emplace_back(ByteLevelDecoder{});
    else if (type == "Metaspace")
      steps.emplace_back(MetaspaceDecoder{metaspace_of(part)});
    else if (type == "ByteFallback")
      steps.emplace_back(ByteFallbackDecoder{});
    else if (type == "Fuse")
      steps.emplace_back(FuseDecoder{});
    else if (type == "Strip") {
      steps.emplace_back(StripDecoder{part["content"].text(), static_cast<std::size_t>(part["start"].whole()),
                                      static_cast<std::size_t>(part["stop"].whole())});
    } else if (type == "Replace")
      steps.emplace_back(ReplaceDecoder{replace_of(part)});
    else if (type == "BPEDecoder")
      steps.emplace_back(BpeDecoder{part.text("suffix", "</w>")});
    else if (type == "WordPiece")
      steps.emplace_back(WordPieceDecoder{part.text("prefix", "##"), part.flag("cleanup", true)});
    else
      part.unknown();
  });
  return steps;
}

/// A vocabulary object (token: id) as a list by id; gaps, which are for added tokens, stay empty.
std::vector<std::string> read_vocabulary(const Part& part) {
  if (!part.node.is_object()) fail("{} is not an object of tokens and ids", part.path);
  std::vector<std::string> tokens;
  const std::size_t limit = 4 * part.node.size() + 1024;
  for (const auto& [token, id] : part.node.items()) {
    const std::size_t place = static_cast<std::size_t>(Part{id, part.path + "[\"" + token + "\"]"}.whole());
    if (place >= limit)
      fail("{}: token \"{}\" has the id {}, far beyond the {} tokens", part.path, token, place, part.node.size());
    if (place >= tokens.size()) tokens.resize(place + 1);
    if (!tokens[place].empty())
      fail("{}: tokens \"{}\" and \"{}\" have the same id {}", part.path, tokens[place], token, place);
    tokens[place] = token;
  }
  return tokens;
}

std::vector<std::pair<std::string, std::string>> read_merges(const Part& part) {
  std::vector<std::pair<std::string, std::string>> merges;
  if (!part.node.is_array()) fail("{} is not a list", part.path);
  for (std::size_t i = 0; i < part.node.size(); ++i) {
    const Node& merge = part.node[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    // Files before 2024: both in one text, with a space between.
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const auto space = text.find(' ');
    const bool two = space != std::string::npos && space > 0 && space + 1 < text.size() &&
                     text.find(' ', space + 1) == std::string::npos;
    if (!two) fail("{}[{}] is not two tokens", part.path, i);
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

BpeModel read_bpe(const Part& part, bool byte_level) {
  if (part.has("dropout") && part.node.at("dropout") != 0.0)
    fail("{}.dropout is set, and would make the ids random", part.path);
  BpeModel model;
  model.tokens = read_vocabulary(part["vocab"]);
  model.merges = read_merges(part["merges"]);
  model.byte_level = byte_level;
  model.ignore_merges = part.flag("ignore_merges", false);
  model.byte_fallback = part.flag("byte_fallback", false);
  model.fuse_unknown = part.flag("fuse_unk", false);
  model.unknown = part.text("unk_token", "");
  model.continuing_prefix = part.text("continuing_subword_prefix", "");
  model.end_of_word_suffix = part.text("end_of_word_suffix", "");
  return model;
}

UnigramModel read_unigram(const Part& part) {
  UnigramModel model;
  std::set<std::string> seen;
  for (const Part& piece : part["vocab"].list()) {
    const bool fine =
        piece.node.is_array() && piece.node.size() == 2 && piece.node[0].is_string() && piece.node[1].is_number();
    if (!fine) fail("{} is not a piece and its score", piece.path);
    model.tokens.push_back(piece.node[0].get<std::string>());
    model.scores.push_back(piece.node[1].get<double>());
    if (!seen.insert(model.tokens.back()).second)
      fail("{}: the piece \"{}\" appears twice", piece.path, model.tokens.back());
  }
  if (part.has("unk_id")) model.unknown = part["unk_id"].whole();
  model.byte_fallback = part.flag("byte_fallback", false);
  return model;
}

WordPieceModel read_word_piece(const Part& part) {
  WordPieceModel model;
  model.tokens = read_vocabulary(part["vocab"]);
  model.unknown = part.text("unk_token", model.unknown);
  model.continuing_prefix = part.text("continuing_subword_prefix", model.continuing_prefix);
  if (part.has("max_input_chars_per_word"))
    model.longest_word = static_cast<std::size_t>(part["max_input_chars_per_word"].whole());
  return model;
}

WordModel read_model(const Part& part, const std::vector<PreTokenizerStep>& steps) {
  const bool byte_level = std::any_of(
      steps.begin(), steps.end(), [](const PreTokenizerStep& step) { return std::holds_alternative<ByteLevel>(step); });
  // Older files do not name the type of the model.
  std::string type = part.text("type", "");
  if (type.empty()) type = part.has("merges") ? "BPE" : part["vocab"].node.is_array() ? "Unigram" : "WordPiece";
  if (type == "BPE") return read_bpe(part, byte_level);
  if (byte_level) fail("{}: ByteLevel is only read with a BPE model", part.path);
  if (type == "Unigram") return read_unigram(part);
  if (type == "WordPiece") return read_word_piece(part);
  fail("{} is of type \"{}\", which is not known", part.path, type);
}

std::vector<AddedToken> read_added(const Part& part) {
  std::vector<AddedToken> tokens;
  std::set<std::int32_t> ids;
  for (const Part& one : part.list()) {
    AddedToken token;
    token.id = one["id"].whole();
    token.content = one["content"].text();
    token.special = one.flag("special", false);
    token.single_word = one.flag("single_word", false);
    token.lstrip = one.flag("lstrip", false);
    token.rstrip = one.flag("rstrip", false);
    token.normalized = one.flag("normalized", !token.special);
    if (!ids.insert(token.id).second) fail("{}: the id {} appears twice", one.path, token.id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<TemplateItem> read_template(const Part& part, const Part& whole) {
  std::vector<TemplateItem> items;
  for (const Part& one : part.list()) {
    if (one.has("SpecialToken")) {
      const Part token = one["SpecialToken"];
      TemplateItem item{TemplateItem::Kind::special, {}, token["type_id"].whole()};
      for (const Part& id : whole["special_tokens"][token["id"].text().c_str()]["ids"].list())
        item.ids.push_back(id.whole());
      items.push_back(std::move(item));
    } else {
      const Part sequence = one["Sequence"];
      const std::string id = sequence["id"].text();
      if (id != "A" && id != "B") fail("{}.id is \"{}\", neither A nor B", sequence.path, id);
      items.push_back(
          {id == "A" ? TemplateItem::Kind::first : TemplateItem::Kind::second, {}, sequence["type_id"].whole()});
    }
  }
  return items;
}

std::int32_t id_of_pair(const Part& part) {
  if (!part.node.is_array() || part.node.size() != 2) fail("{} is not a token and its id", part.path);
  return Part{part.node[1], part.path + "[1]"}.whole();
}

/// [cls] A [sep], and [cls] A [sep] B [sep], with as many [sep] between as the model has.
void put_between(PostProcessor& out, std::int32_t cls, std::int32_t sep, std::size_t separators,
                 std::int32_t second_type) {
  using Kind = TemplateItem::Kind;
  out.single = {{Kind::special, {cls}, 0}, {Kind::first, {}, 0}, {Kind::special, {sep}, 0}};
  out.pair = out.single;
  if (separators == 2) out.pair.push_back({Kind::special, {sep}, second_type});
  out.pair.push_back({Kind::second, {}, second_type});
  out.pair.push_back({Kind::special, {sep}, second_type});
}

PostProcessor read_post_processor(const Part& whole) {
  PostProcessor out;
  std::vector<int> none;
  read_steps(whole, "processors", none, 0, [&](const Part& part) {
    const std::string type = part.type();
    if (type == "ByteLevel") {
      out.byte_level = true;
      out.trim_offsets = part.flag("trim_offsets", true);
      out.add_prefix_space = part.flag("add_prefix_space", true);
    } else if (type == "TemplateProcessing") {
      out.single = read_template(part["single"], part);
      out.pair = read_template(part["pair"], part);
    } else if (type == "RobertaProcessing") {
      out.byte_level = true;
      out.trim_offsets = part.flag("trim_offsets", true);
      out.add_prefix_space = part.flag("add_prefix_space", true);
      put_between(out, id_of_pair(part["cls"]), id_of_pair(part["sep"]), 2, 0);
    } else if (type == "BertProcessing") {
      put_between(out, id_of_pair(part["cls"]), id_of_pair(part["sep"]), 1, 1);
    } else {
      part.unknown();
    }
  });
  return out;
}

Node parse(std::string_view text, std::string_view name) {
  try {
    return Node::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not JSON: {}", name, error.what());
  }
}

const Node& null_node() {
  static const Node null;
  return null;
}

Part part_or_null(const Node& document, const char* key, std::string_view name) {
  return {document.contains(key) ? document.at(key) : null_node(), std::string(name) + ": " + key};
}

/// A special token of tokenizer_config.json, which is a text or an object with the text as its content.
std::optional<std::int32_t> read_special(const Node& config, const char* key, const TokenizerParts& parts) {
  if (!config.is_object() || !config.contains(key)) return std::nullopt;
  const Node& value = config.at(key);
  const Node& text = value.is_object() && value.contains("content") ? value.at("content") : value;
  if (!text.is_string()) return std::nullopt;
  const auto content = text.get<std::string>();
  for (const AddedToken& token : parts.added) {
    if (token.content == content) return token.id;
  }
  const auto& tokens =
      std::visit([](const auto& kind) -> const std::vector<std::string>& { return kind.tokens; }, parts.model);
  const auto found = std::find(tokens.begin(), tokens.end(), content);
  if (content.empty() || found == tokens.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - tokens.begin());
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json, std::string_view name) {
  const Node document = parse(tokenizer_json, name);
  if (!document.is_object()) fail("{}: not a JSON object", name);
  TokenizerParts parts;
  if (document.contains("added_tokens")) parts.added = read_added(part_or_null(document, "added_tokens", name));
  parts.normalizer = read_normalizer(part_or_null(document, "normalizer", name));
  parts.pre_tokenizer = read_pre_tokenizer(part_or_null(document, "pre_tokenizer", name));
  const Part model = part_or_null(document, "model", name);
  if (!model.node.is_object()) fail("{}: there is no model", name);
  parts.model = read_model(model, parts.pre_tokenizer);
  parts.post_processor = read_post_processor(part_or_null(document, "post_processor", name));
  parts.decoder = read_decoder(part_or_null(document, "decoder", name));
  if (!config_json.empty()) {
    const Node config = parse(config_json, std::string(name) + "'s tokenizer_config.json");
    parts.special = {read_special(config, "bos_token", parts), read_special(config, "eos_token", parts),
                     read_special(config, "pad_token", parts), read_special(config, "unk_token", parts)};
  }
  return Tokenizer(std::move(parts), name);
}

}  // namespace kullback
