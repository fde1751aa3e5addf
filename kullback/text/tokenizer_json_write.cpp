// tokenizer.json and tokenizer_config.json as Hugging Face's libraries read them.
#include <algorithm>
#include <unordered_set>

#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

Json json_of(const Pattern& pattern) { return {{pattern.is_literal() ? "String" : "Regex", pattern.expression()}}; }

Json json_of(const UnicodeForm& form) {
  return {{"type", std::string("NF") + (form.compatibility ? "K" : "") + (form.compose ? "C" : "D")}};
}
Json json_of(const Prepend& step) { return {{"type", "Prepend"}, {"prepend", step.text}}; }
Json json_of(const Replace& step) {
  return {{"type", "Replace"}, {"pattern", json_of(step.pattern)}, {"content", step.content}};
}
Json json_of(const StripSpace& step) {
  return {{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}};
}
Json json_of(const Lowercase&) { return {{"type", "Lowercase"}}; }
Json json_of(const StripAccents&) { return {{"type", "StripAccents"}}; }
Json json_of(const Nmt&) { return {{"type", "Nmt"}}; }
Json json_of(const BertNormalizer& step) {
  return {{"type", "BertNormalizer"},
          {"clean_text", step.clean_text},
          {"handle_chinese_chars", step.handle_chinese_chars},
          {"strip_accents", step.strip_accents ? Json(*step.strip_accents) : Json(nullptr)},
          {"lowercase", step.lowercase}};
}
Json json_of(const std::shared_ptr<const Precompiled>& step) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", step->base64()}};
}

const char* name_of(Split::Behavior behavior) {
  switch (behavior) {
    case Split::Behavior::isolated: return "Isolated";
    case Split::Behavior::removed: return "Removed";
    case Split::Behavior::merged_with_previous: return "MergedWithPrevious";
    case Split::Behavior::merged_with_next: return "MergedWithNext";
    case Split::Behavior::contiguous: return "Contiguous";
  }
  return "Isolated";
}

Json json_of(const Split& step) {
  return {{"type", "Split"},
          {"pattern", json_of(step.pattern)},
          {"behavior", name_of(step.behavior)},
          {"invert", step.invert}};
}
Json json_of(const Digits& step) { return {{"type", "Digits"}, {"individual_digits", step.individual}}; }
Json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}
Json json_of(const ByteLevel& step) { return byte_level(step.add_prefix_space, true, step.use_pattern); }
Json json_of(const Metaspace& step) {
  const char* scheme = step.prepend == Metaspace::Prepend::always  ? "always"
                       : step.prepend == Metaspace::Prepend::first ? "first"
                                                                   : "never";
  return {{"type", "Metaspace"}, {"replacement", step.replacement}, {"prepend_scheme", scheme}, {"split", step.split}};
}
Json json_of(const WhitespaceSplit&) { return {{"type", "WhitespaceSplit"}}; }
Json json_of(const Whitespace&) { return {{"type", "Whitespace"}}; }
Json json_of(const Punctuation& step) { return {{"type", "Punctuation"}, {"behavior", name_of(step.behavior)}}; }
Json json_of(const BertPreTokenizer&) { return {{"type", "BertPreTokenizer"}}; }

Json json_of(const ByteLevelDecoder&) { return byte_level(true, true, true); }
Json json_of(const MetaspaceDecoder& step) { return json_of(step.metaspace); }
Json json_of(const ByteFallbackDecoder&) { return {{"type", "ByteFallback"}}; }
Json json_of(const FuseDecoder&) { return {{"type", "Fuse"}}; }
Json json_of(const StripDecoder& step) {
  return {{"type", "Strip"}, {"content", step.content}, {"start", step.start}, {"stop", step.stop}};
}
Json json_of(const ReplaceDecoder& step) { return json_of(step.replace); }
Json json_of(const BpeDecoder& step) { return {{"type", "BPEDecoder"}, {"suffix", step.suffix}}; }
Json json_of(const WordPieceDecoder& step) {
  return {{"type", "WordPiece"}, {"prefix", step.prefix}, {"cleanup", step.cleanup}};
}

/// None: null; one: itself; several: a Sequence, whose list each kind of step names differently.
template <class Step>
Json sequence(const std::vector<Step>& steps, const char* list) {
  Json all = Json::array();
  for (const Step& step : steps) all.push_back(std::visit([](const auto& kind) { return json_of(kind); }, step));
  if (all.empty()) return nullptr;
  if (all.size() == 1) return all[0];
  return {{"type", "Sequence"}, {list, std::move(all)}};
}

Json json_of(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

std::vector<AddedToken> by_id(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

/// Token to id. Filled from behind, since looking each key up first would take time in the square of the vocabulary.
Json vocabulary(const std::vector<std::string>& tokens) {
  Json out = Json::object();
  auto& entries = static_cast<Json::object_t::Container&>(out.get_ref<Json::object_t&>());
  entries.reserve(tokens.size());
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty() && seen.insert(tokens[id]).second) entries.emplace_back(tokens[id], id);
  }
  return out;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json json_of(const BpeModel& model) {
  Json merges = Json::array();
  for (const auto& [left, right] : model.merges) merges.push_back(Json::array({left, right}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", text_or_null(model.unknown)},
          {"continuing_subword_prefix", text_or_null(model.continuing_prefix)},
          {"end_of_word_suffix", text_or_null(model.end_of_word_suffix)},
          {"fuse_unk", model.fuse_unknown},
          {"byte_fallback", model.byte_fallback},
          {"ignore_merges", model.ignore_merges},
          {"vocab", vocabulary(model.tokens)},
          {"merges", std::move(merges)}};
}

Json json_of(const UnigramModel& model) {
  Json pieces = Json::array();
  for (std::size_t i = 0; i < model.tokens.size(); ++i)
    pieces.push_back(Json::array({model.tokens[i], model.scores[i]}));
  return {{"type", "Unigram"},
          {"unk_id", model.unknown ? Json(*model.unknown) : Json(nullptr)},
          {"vocab", std::move(pieces)},
          {"byte_fallback", model.byte_fallback}};
}

Json json_of(const WordPieceModel& model) {
  return {{"type", "WordPiece"},
          {"unk_token", model.unknown},
          {"continuing_subword_prefix", model.continuing_prefix},
          {"max_input_chars_per_word", model.longest_word},
          {"vocab", vocabulary(model.tokens)}};
}

Json json_of(const std::vector<TemplateItem>& items, const Tokenizer& tokenizer, Json& special) {
  Json out = Json::array();
  for (const TemplateItem& item : items) {
    if (item.kind != TemplateItem::Kind::special) {
      out.push_back(
          {{"Sequence", {{"id", item.kind == TemplateItem::Kind::first ? "A" : "B"}, {"type_id", item.type_id}}}});
      continue;
    }
    for (const std::int32_t id : item.ids) {
      const std::string token = tokenizer.token_bytes(id);
      out.push_back({{"SpecialToken", {{"id", token}, {"type_id", item.type_id}}}});
      special[token] = {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
    }
  }
  return out;
}

/// The step that settles offsets, what goes around texts, both, or neither.
Json post_processor(const Tokenizer& tokenizer) {
  const PostProcessor& post = tokenizer.parts().post_processor;
  const Json offsets = byte_level(post.add_prefix_space, post.trim_offsets, true);
  if (post.single.empty()) return post.byte_level ? offsets : Json(nullptr);
  Json special = Json::object();
  Json around = {{"type", "TemplateProcessing"},
                 {"single", json_of(post.single, tokenizer, special)},
                 {"pair", json_of(post.pair, tokenizer, special)}};
  around["special_tokens"] = std::move(special);
  if (!post.byte_level) return around;
  return {{"type", "Sequence"}, {"processors", Json::array({offsets, std::move(around)})}};
}

}  // namespace

Json Tokenizer::to_json() const {
  Json added = Json::array();
  for (const AddedToken& token : by_id(parts().added)) added.push_back(json_of(token));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", sequence(parts().normalizer, "normalizers")},
          {"pre_tokenizer", sequence(parts().pre_tokenizer, "pretokenizers")},
          {"post_processor", post_processor(*this)},
          {"decoder", sequence(parts().decoder, "decoders")},
          {"model", std::visit([](const auto& kind) { return json_of(kind); }, parts().model)}};
}

Json Tokenizer::config_json(std::string_view chat_template) const {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  Json added = Json::object();
  for (const AddedToken& token : by_id(parts().added)) {
    Json entry = json_of(token);
    entry.erase("id");
    added[std::to_string(token.id)] = std::move(entry);
  }
  config["added_tokens_decoder"] = std::move(added);
  const auto name = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) config[key] = token_bytes(*id);
  };
  name("bos_token", bos());
  name("eos_token", eos());
  name("pad_token", pad());
  name("unk_token", unknown());
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  return config;
}

}  // namespace kullback
