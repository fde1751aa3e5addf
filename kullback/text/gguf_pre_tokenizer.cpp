// The names in `tokenizer.ggml.pre` and what they stand for: the regular expressions are those of the models' own
// tokenizer.json files, which is also what makes a tokenizer.json written from a GGUF file agree with the original.
#include <algorithm>
#include <array>

#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/text/pre_tokenizer.h"

namespace kullback {
namespace {

constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* deepseek3_pattern =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum class Kind { gpt2, smollm, llama3, chatglm, qwen2, tekken, gpt4o, deepseek3, falcon };

struct NamedKind {
  const char* name;
  Kind kind;
};

constexpr std::array names{
    NamedKind{"gpt-2", Kind::gpt2},
    NamedKind{"gpt2", Kind::gpt2},
    NamedKind{"phi-2", Kind::gpt2},
    NamedKind{"mpt", Kind::gpt2},
    NamedKind{"olmo", Kind::gpt2},
    NamedKind{"jais", Kind::gpt2},
    NamedKind{"gigachat", Kind::gpt2},
    NamedKind{"exaone4", Kind::gpt2},
    NamedKind{"trillion", Kind::gpt2},
    NamedKind{"granite-docling", Kind::gpt2},
    NamedKind{"smollm", Kind::smollm},
    NamedKind{"starcoder", Kind::smollm},
    NamedKind{"refact", Kind::smollm},
    NamedKind{"command-r", Kind::smollm},
    NamedKind{"codeshell", Kind::smollm},
    NamedKind{"exaone", Kind::smollm},
    NamedKind{"minerva-7b", Kind::smollm},
    NamedKind{"llama-bpe", Kind::llama3},
    NamedKind{"llama3", Kind::llama3},
    NamedKind{"llama-v3", Kind::llama3},
    NamedKind{"falcon3", Kind::llama3},
    NamedKind{"falcon-h1", Kind::llama3},
    NamedKind{"pixtral", Kind::llama3},
    NamedKind{"midm-2.0", Kind::llama3},
    NamedKind{"lfm2", Kind::llama3},
    NamedKind{"chatglm-bpe", Kind::chatglm},
    NamedKind{"glm4", Kind::chatglm},
    NamedKind{"dbrx", Kind::chatglm},
    NamedKind{"smaug-bpe", Kind::chatglm},
    NamedKind{"qwen2", Kind::qwen2},
    NamedKind{"deepseek-r1-qwen", Kind::qwen2},
    NamedKind{"megrez", Kind::qwen2},
    NamedKind{"stablelm2", Kind::qwen2},
    NamedKind{"hunyuan", Kind::qwen2},
    NamedKind{"tekken", Kind::tekken},
    NamedKind{"gpt-4o", Kind::gpt4o},
    NamedKind{"llama4", Kind::gpt4o},
    NamedKind{"deepseek-v3", Kind::deepseek3},
    NamedKind{"hunyuan-dense", Kind::deepseek3},
    NamedKind{"falcon", Kind::falcon},
};

GgufPreTokenizer made(Kind kind) {
  const auto split = [](const char* pattern) { return Split{Pattern(pattern), Split::Behavior::isolated, false}; };
  const ByteLevel with_pattern{false, true};
  const ByteLevel without_pattern{false, false};
  GgufPreTokenizer out;
  switch (kind) {
    case Kind::gpt2: out.steps = {with_pattern}; break;
    case Kind::smollm: out.steps = {Digits{true}, with_pattern}; break;
    case Kind::llama3:
      out.steps = {split(llama3_pattern), without_pattern};
      out.ignore_merges = out.add_bos = true;
      break;
    case Kind::chatglm: out.steps = {split(llama3_pattern), without_pattern}; break;
    case Kind::qwen2:
      out.steps = {split(qwen2_pattern), without_pattern};
      out.compose = true;
      break;
    case Kind::tekken:
      out.steps = {split(tekken_pattern), without_pattern};
      out.ignore_merges = out.add_bos = true;
      break;
    case Kind::gpt4o: out.steps = {split(gpt4o_pattern), without_pattern}; break;
    case Kind::deepseek3:
      out.steps = {split(R"(\p{N}{1,3})"), split(R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)"),
                   split(deepseek3_pattern), without_pattern};
      break;
    case Kind::falcon: out.steps = {split(R"([\p{P}$+<=>^~|`]+)"), with_pattern, split("[0-9][0-9][0-9]")}; break;
  }
  return out;
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const NamedKind& known) { return known.name == name; });
  if (found != names.end()) return made(found->kind);
  std::vector<std::string> all;
  for (const NamedKind& known : names) all.emplace_back(known.name);
  fail("the pre-tokeniser \"{}\" is not known{}; known are {}", name, suggestion(name, all), listing(all));
}

}  // namespace kullback
