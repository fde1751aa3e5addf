// tokenizer.json, as the Hugging Face library tokenizers writes it, for byte-level BPE.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "kullback/base/error.h"
#include "kullback/io/files.h"
#include "kullback/lm/read.h"

namespace kullback {
namespace {

// Sorted objects: a vocabulary has too many keys for those that keep their order.
using Sorted = nlohmann::json;

// A value in the file together with the file's name, so that whatever is wrong can be told.
struct Part {
  const Sorted& json;
  const std::string& source;

  bool has(const char* key) const { return json.is_object() && json.contains(key) && !json[key].is_null(); }
  Part operator[](const char* key) const {
    if (!has(key)) fail("{}: no '{}' where one is needed", source, key);
    return {json[key], source};
  }
  std::vector<Part> items() const {
    if (!json.is_array()) fail("{}: {} is not a list", source, json.dump().substr(0, 60));
    std::vector<Part> parts;
    for (const Sorted& item : json) parts.push_back({item, source});
    return parts;
  }
  std::string text() const {
    if (!json.is_string()) fail("{}: {} is not a text", source, json.dump().substr(0, 60));
    return json.get<std::string>();
  }
  int32_t id() const {
    constexpr int64_t largest = 1 << 24;
    if (!json.is_number_integer() || json.get<int64_t>() < 0 || json.get<int64_t>() > largest) fail("{}: {} is not a token id", source, json.dump().substr(0, 60));
    return json.get<int32_t>();
  }
  std::string text(const char* key) const { return has(key) ? (*this)[key].text() : ""; }
  bool flag(const char* key, bool fallback = false) const {
    if (!has(key)) return fallback;
    if (!json[key].is_boolean()) fail("{}: the value of '{}' is neither true nor false", source, key);
    return json[key].get<bool>();
  }
};

// A step, or the steps of a Sequence, which are listed under a name of their own.
std::vector<Part> steps_of(const Part& owner, const char* key, const char* list) {
  if (!owner.has(key)) return {};
  const Part step = owner[key];
  return step.text("type") == "Sequence" ? step[list].items() : std::vector<Part>{step};
}

NormalizerStep normalizer_step(const Part& step) {
  const std::string type = step["type"].text();
  if (type == "NFC") return UnicodeForm{true, false};
  if (type == "NFD") return UnicodeForm{false, false};
  if (type == "NFKC") return UnicodeForm{true, true};
  if (type == "NFKD") return UnicodeForm{false, true};
  fail("{}: normalizer '{}' is not supported", step.source, type);
}

Split::Behavior behavior_of(const Part& step) {
  static const std::map<std::string, Split::Behavior> known = {{"Isolated", Split::Behavior::isolated},
                                                               {"Removed", Split::Behavior::removed},
                                                               {"MergedWithPrevious", Split::Behavior::merged_with_previous},
                                                               {"MergedWithNext", Split::Behavior::merged_with_next},
                                                               {"Contiguous", Split::Behavior::contiguous}};
  const auto found = known.find(step["behavior"].text());
  if (found == known.end()) fail("{}: behavior '{}' of a split is not known", step.source, step["behavior"].text());
  return found->second;
}

PreTokenizerStep pre_tokenizer_step(const Part& step) {
  const std::string type = step["type"].text();
  if (type == "Digits") return Digits{step.flag("individual_digits")};
  if (type == "ByteLevel") return ByteLevel{step.flag("add_prefix_space", true), step.flag("use_regex", true)};
  if (type != "Split") fail("{}: pre-tokenizer '{}' is not supported", step.source, type);
  const Part pattern = step["pattern"];
  return Split{pattern.has("String") ? Pattern::literal(pattern["String"].text()) : Pattern(pattern["Regex"].text()),
               behavior_of(step), step.flag("invert")};
}

std::vector<std::string> vocabulary_of(const Part& vocabulary) {
  if (!vocabulary.json.is_object()) fail("{}: the vocabulary is not an object", vocabulary.source);
  std::vector<std::string> tokens;
  for (const auto& [token, id] : vocabulary.json.items()) {
    const auto place = static_cast<size_t>(Part{id, vocabulary.source}.id());
    if (place >= tokens.size()) tokens.resize(place + 1);
    if (!tokens[place].empty()) fail("{}: id {} stands for both '{}' and '{}'", vocabulary.source, place, tokens[place], token);
    tokens[place] = token;
  }
  return tokens;
}

// ["left", "right"], or in older files "left right".
std::pair<std::string, std::string> merge_of(const Part& merge) {
  if (merge.json.is_array()) {
    const std::vector<Part> sides = merge.items();
    if (sides.size() != 2) fail("{}: merge {} is not of two tokens", merge.source, merge.json.dump());
    return {sides[0].text(), sides[1].text()};
  }
  const std::string text = merge.text();
  const size_t space = text.find(' ', 1);
  if (space == std::string::npos) fail("{}: merge '{}' is not of two tokens", merge.source, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

BpeModel model_of(const Part& model) {
  // The oldest files name no type.
  if (model.has("type") && model["type"].text() != "BPE") fail("{}: tokenizer model '{}' is not supported; BPE is", model.source, model["type"].text());
  if (model.has("dropout") && model.json["dropout"] != 0) fail("{}: a tokenizer with dropout is not supported", model.source);
  BpeModel bpe;
  bpe.tokens = vocabulary_of(model["vocab"]);
  for (const Part& merge : model["merges"].items()) bpe.merges.push_back(merge_of(merge));
  bpe.ignore_merges = model.flag("ignore_merges");
  bpe.byte_fallback = model.flag("byte_fallback");
  bpe.unknown = model.text("unk_token");
  bpe.fuse_unknown = model.flag("fuse_unk");
  bpe.continuing_prefix = model.text("continuing_subword_prefix");
  bpe.end_of_word_suffix = model.text("end_of_word_suffix");
  return bpe;
}

AddedToken added_token(const Part& token) {
  return {token["id"].id(), token["content"].text(), token.flag("special"), token.flag("single_word"), token.flag("lstrip"),
          token.flag("rstrip"), token.flag("normalized")};
}

// What a template puts before and after a text.
void read_template(const Part& step, TokenizerParts& parts) {
  std::vector<int32_t>* side = &parts.prefix;
  for (const Part& item : step["single"].items()) {
    if (item.has("Sequence")) {
      side = &parts.suffix;
      continue;
    }
    for (const Part& id : step["special_tokens"][item["SpecialToken"]["id"].text().c_str()]["ids"].items()) side->push_back(id.id());
  }
}

void read_post_processor(const Part& step, TokenizerParts& parts) {
  const std::string type = step["type"].text();
  if (type == "TemplateProcessing") return read_template(step, parts);
  if (type != "ByteLevel") fail("{}: post-processor '{}' is not supported", step.source, type);
}

// In tokenizer_config.json a special token is its text, or an object that holds it.
SpecialIds special_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  SpecialIds special;
  const std::filesystem::path path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return special;
  const Sorted json = Sorted::parse(read_text(path), nullptr, false);
  const std::string source = path.string();
  if (!json.is_object()) fail("{}: not a JSON object", source);
  const Part config{json, source};
  const auto id = [&](const char* key) -> std::optional<int32_t> {
    if (!config.has(key)) return std::nullopt;
    return tokenizer.token_id(config[key].json.is_object() ? config[key]["content"].text() : config[key].text());
  };
  special.bos = id("bos_token");
  special.eos = id("eos_token");
  special.pad = id("pad_token");
  special.unknown = id("unk_token");
  return special;
}

}  // namespace

std::optional<Tokenizer> read_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const std::string source = path.string();
  const Sorted json = Sorted::parse(read_text(path), nullptr, false);
  if (!json.is_object()) fail("{}: not a JSON object", source);
  const Part file{json, source};

  TokenizerParts parts;
  parts.model = model_of(file["model"]);
  if (file.has("added_tokens")) {
    for (const Part& token : file["added_tokens"].items()) parts.added.push_back(added_token(token));
  }
  for (const Part& step : steps_of(file, "normalizer", "normalizers")) parts.normalizer.push_back(normalizer_step(step));
  for (const Part& step : steps_of(file, "pre_tokenizer", "pretokenizers")) parts.pre_tokenizer.push_back(pre_tokenizer_step(step));
  for (const Part& step : steps_of(file, "post_processor", "processors")) read_post_processor(step, parts);
  const bool bytes = std::any_of(parts.pre_tokenizer.begin(), parts.pre_tokenizer.end(),
                                 [](const PreTokenizerStep& step) { return std::holds_alternative<ByteLevel>(step); });
  if (!bytes) fail("{}: a tokenizer that is not over bytes (no ByteLevel pre-tokenizer) is not supported", source);

  parts.special = special_ids(folder, Tokenizer(parts, source));
  return Tokenizer(std::move(parts), source);
}

}  // namespace kullback
