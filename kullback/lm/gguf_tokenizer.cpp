#include "kullback/lm/gguf_tokenizer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kullback/base/error.h"
#include "kullback/base/log.h"

namespace kullback {
namespace {

// The numbers of `tokenizer.ggml.token_type`.
constexpr int32_t normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6;

std::optional<int32_t> id_of(const GgufFile& file, const char* key) {
  const int64_t id = file.metadata().integer(std::string("tokenizer.ggml.") + key, -1);
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

// What the two kinds of vocabulary share. Absent keys leave it to the tokenizer what goes around a text.
template <class Spec>
void read_common(const GgufFile& file, Spec& spec) {
  const GgufMetadata& metadata = file.metadata();
  spec.name = file.name();
  spec.tokens = metadata.strings("tokenizer.ggml.tokens");
  if (metadata.contains("tokenizer.ggml.token_type")) spec.types = metadata.integers("tokenizer.ggml.token_type");
  spec.special = {id_of(file, "bos_token_id"), id_of(file, "eos_token_id"), id_of(file, "padding_token_id"),
                  id_of(file, "unknown_token_id")};
  if (metadata.contains("tokenizer.ggml.add_bos_token"))
    spec.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token");
  if (metadata.contains("tokenizer.ggml.add_eos_token"))
    spec.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token");
}

Tokenizer read_bpe(const GgufFile& file) {
  BpeSpec spec;
  read_common(file, spec);
  spec.merges = file.metadata().strings("tokenizer.ggml.merges");
  spec.pre_tokenizer = file.metadata().string("tokenizer.ggml.pre", "gpt2");
  spec.add_prefix_space = file.metadata().boolean("tokenizer.ggml.add_space_prefix", false);
  return Tokenizer(spec);
}

Tokenizer read_sentencepiece(const GgufFile& file) {
  SentencePieceSpec spec;
  read_common(file, spec);
  spec.scores = file.metadata().numbers("tokenizer.ggml.scores");
  spec.add_space_prefix = file.metadata().boolean("tokenizer.ggml.add_space_prefix", true);
  return Tokenizer(spec);
}

// The name in GGUF of the way in which a byte-level tokenizer splits text: that whose own tokenizer.json has the same parts.
std::string pre_tokenizer_name(const Tokenizer& tokenizer, const std::string& model) {
  const Json ours = tokenizer.to_json();
  for (const char* name :
       {"smollm", "gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3", "falcon", "dbrx"}) {
    BpeSpec spec;
    spec.name = name;
    spec.tokens = {"a"};
    spec.types = {normal};
    spec.pre_tokenizer = name;
    const Json theirs = Tokenizer(spec).to_json();
    if (theirs["pre_tokenizer"] == ours["pre_tokenizer"] && theirs["normalizer"] == ours["normalizer"]) return name;
  }
  fail("{}: GGUF has no name for the way in which the model's tokenizer splits text", model);
}

std::string spelling(const Tokenizer& tokenizer, const std::vector<std::string>& tokens, size_t id) {
  if (id < tokens.size() && !tokens[id].empty()) return tokens[id];
  for (const AddedToken& added : tokenizer.parts().added) {
    if (static_cast<size_t>(added.id) == id) return added.content;
  }
  return "";
}

int32_t type_of(const Tokenizer& tokenizer, const std::string& token, size_t id, bool byte_fallback) {
  if (tokenizer.unknown() && static_cast<size_t>(*tokenizer.unknown()) == id && byte_fallback) return unknown;
  for (const AddedToken& added : tokenizer.parts().added) {
    if (static_cast<size_t>(added.id) == id) return added.special ? control : user_defined;
  }
  const bool is_byte = byte_fallback && token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
  return is_byte ? byte : normal;
}

// Every row of the embedding has a token; those that the tokenizer lacks are named and never used.
void add_tokens(GgufWriter& writer, const Tokenizer& tokenizer, const BpeModel& bpe, int64_t rows) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::set<std::string> taken;
  for (size_t id = 0; id < static_cast<size_t>(rows); ++id) {
    std::string token = spelling(tokenizer, bpe.tokens, id);
    int32_t type = type_of(tokenizer, token, id, bpe.byte_fallback);
    if (token.empty() || taken.contains(token)) {
      token = fmt::format("[PAD{}]", id);
      type = unused;
    }
    taken.insert(token);
    tokens.push_back(std::move(token));
    types.push_back(type);
  }
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.token_type", types);
}

// SentencePiece merges whatever pair makes the piece of the highest score, so the order of the merges is the pieces'
// order; llama.cpp knows nothing else. Pieces that no merge makes are single characters, or never come about.
std::vector<float> scores_of(const BpeModel& bpe, int64_t rows) {
  std::map<std::string, size_t> ids;
  for (size_t id = 0; id < bpe.tokens.size(); ++id) ids.emplace(bpe.tokens[id], id);
  std::vector<float> scores(static_cast<size_t>(rows), -1e6f);
  for (size_t rank = bpe.merges.size(); rank-- > 0;) {
    const auto made = ids.find(bpe.merges[rank].first + bpe.merges[rank].second);
    if (made != ids.end() && made->second < scores.size()) scores[made->second] = -static_cast<float>(rank);
  }
  return scores;
}

void add_sentencepiece(GgufWriter& writer, const Tokenizer& tokenizer, const BpeModel& bpe, int64_t rows) {
  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.pre", "default");
  add_tokens(writer, tokenizer, bpe, rows);
  writer.add("tokenizer.ggml.scores", scores_of(bpe, rows));
  const std::vector<int32_t> word = tokenizer.encode("a");  // begins with a space where one is put before a text
  writer.add("tokenizer.ggml.add_space_prefix", !word.empty() && tokenizer.token_bytes(word[0]).starts_with("\u2581"));
}

void add_bpe(GgufWriter& writer, const Tokenizer& tokenizer, const BpeModel& bpe, const Model& model) {
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", pre_tokenizer_name(tokenizer, model.name));
  add_tokens(writer, tokenizer, bpe, model.config().vocabulary_size);
  std::vector<std::string> merges;
  for (const auto& [left, right] : bpe.merges) merges.push_back(left + " " + right);
  writer.add("tokenizer.ggml.merges", merges);
}

}  // namespace

std::optional<Tokenizer> tokenizer_from_gguf(const GgufFile& file, const Config& config) {
  if (!file.metadata().contains("tokenizer.ggml.model")) return std::nullopt;
  const std::string kind = file.metadata().string("tokenizer.ggml.model");
  if (kind != "gpt2" && kind != "llama") {
    fail("{}: tokenizer '{}' is not supported; gpt2 (byte-level BPE) and llama (SentencePiece BPE) are", file.name(),
         kind);
  }
  const auto tokens = static_cast<int64_t>(file.metadata().strings("tokenizer.ggml.tokens").size());
  if (tokens > config.vocabulary_size) {
    fail("{}: the tokenizer has {} tokens and the embedding only {} rows", file.name(), tokens, config.vocabulary_size);
  }
  return kind == "gpt2" ? read_bpe(file) : read_sentencepiece(file);
}

void add_tokenizer(GgufWriter& writer, const Model& model) {
  const Tokenizer& tokenizer = model.text();
  for (const AddedToken& token : tokenizer.parts().added) {
    if (!token.lstrip && !token.rstrip && !token.single_word) continue;
    warn(fmt::format(
        "{}: GGUF has no word for tokens such as {}, which take the spaces beside them or stand as whole words",
        model.name, token.content));
    break;
  }
  const auto* bpe = std::get_if<BpeModel>(&tokenizer.parts().model);
  if (!bpe) fail("{}: GGUF files are written with BPE tokenizers only, and the model's is of another kind", model.name);
  if (bpe->byte_level) {
    add_bpe(writer, tokenizer, *bpe, model);
  } else {
    add_sentencepiece(writer, tokenizer, *bpe, model.config().vocabulary_size);
  }
  const auto id = [&](const char* key, std::optional<int32_t> token) {
    if (token) writer.add(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(*token));
  };
  id("bos_token_id", tokenizer.bos());
  id("eos_token_id", tokenizer.eos());
  id("padding_token_id", tokenizer.pad());
  id("unknown_token_id", tokenizer.unknown());
  for (const int32_t stop : model.generation.stop_ids) {
    if (stop != tokenizer.eos()) {
      id("eot_token_id", stop);
      break;
    }
  }
  const std::vector<int32_t> around = tokenizer.add_special({});
  const auto holds = [&](std::optional<int32_t> token) {
    return token && std::find(around.begin(), around.end(), *token) != around.end();
  };
  writer.add("tokenizer.ggml.add_bos_token", holds(tokenizer.bos()) && !around.empty() && around[0] == tokenizer.bos());
  writer.add("tokenizer.ggml.add_eos_token",
             around.size() > 0 && holds(tokenizer.eos()) && around.back() == tokenizer.eos() && around.size() > 1);
  if (!model.jinja.empty()) writer.add("tokenizer.chat_template", std::string_view(model.jinja));
}

}  // namespace kullback
