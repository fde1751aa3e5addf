// tokenizer.json and tokenizer_config.json as Hugging Face's libraries read them.
#include <algorithm>

#include "kullback/base/error.h"
#include "kullback/text/tokenizer.h"

namespace kullback {
namespace {

Json json_of(const UnicodeForm& form) {
  return {{"type", std::string("NF") + (form.compatibility ? "K" : "") + (form.compose ? "C" : "D")}};
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
          {"pattern", {{step.pattern.is_literal() ? "String" : "Regex", step.pattern.expression()}}},
          {"behavior", name_of(step.behavior)},
          {"invert", step.invert}};
}

Json json_of(const Digits& step) { return {{"type", "Digits"}, {"individual_digits", step.individual}}; }

Json json_of(const ByteLevel& step) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", step.add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", step.use_pattern}};
}

/// None: null; one: itself; several: a Sequence, whose list the two kinds of step name differently.
template <class Step>
Json sequence(const std::vector<Step>& steps, const char* list) {
  Json all = Json::array();
  for (const Step& step : steps) all.push_back(std::visit([](const auto& kind) { return json_of(kind); }, step));
  if (all.empty()) return nullptr;
  if (all.size() == 1) return all[0];
  return {{"type", "Sequence"}, {list, std::move(all)}};
}

Json json_of(const AddedToken& token) {
  return {{"id", token.id},           {"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip}, {"normalized", token.normalized}, {"special", token.special}};
}

std::vector<AddedToken> by_id(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

Json json_of(const BpeModel& model) {
  // Objects that look a key up before each insertion would take time in the square of the vocabulary.
  Json::object_t vocabulary;
  vocabulary.reserve(model.tokens.size());
  std::unordered_map<std::string_view, bool> seen;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].empty() || !seen.emplace(model.tokens[id], true).second) continue;
    static_cast<Json::object_t::Container&>(vocabulary).emplace_back(model.tokens[id], id);
  }
  Json merges = Json::array();
  for (const auto& [left, right] : model.merges) merges.push_back({left, right});
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", text_or_null(model.unknown)},
          {"continuing_subword_prefix", text_or_null(model.continuing_prefix)},
          {"end_of_word_suffix", text_or_null(model.end_of_word_suffix)},
          {"fuse_unk", model.fuse_unknown},
          {"byte_fallback", model.byte_fallback},
          {"ignore_merges", model.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

/// What goes around a text, as a template; where nothing does, the step that only settles offsets.
static Json post_processor(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  const Json offsets = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  if (parts.prefix.empty() && parts.suffix.empty()) return offsets;
  Json single = Json::array();
  Json pair = Json::array();
  Json special = Json::object();
  const auto add = [&](std::int32_t id) {
    const std::string token = tokenizer.token_bytes(id);
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  for (const std::int32_t id : parts.prefix) add(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const std::int32_t id : parts.suffix) add(id);
  for (const char* text : {"A", "B"}) {
    for (Json item : single) {
      Json& inner = item.begin().value();
      if (item.contains("Sequence")) inner["id"] = text;
      inner["type_id"] = text[0] - 'A';
      pair.push_back(std::move(item));
    }
  }
  const Json around = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  return {{"type", "Sequence"}, {"processors", {offsets, around}}};
}

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
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model", json_of(parts().model)}};
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
