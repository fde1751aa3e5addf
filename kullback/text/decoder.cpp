#include "kullback/text/decoder.h"

#include <array>
#include <optional>
#include <utility>

#include "kullback/text/utf8.h"

namespace kullback {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// The byte that "<0x41>" names.
std::optional<char> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = 16 * value + digit;
  }
  return static_cast<char>(value);
}

Tokens run(const ByteLevelDecoder&, Tokens tokens, bool exact) {
  std::string text = joined(tokens);
  return {exact ? std::move(text) : with_replacements(text)};
}

Tokens run(const MetaspaceDecoder& step, Tokens tokens, bool) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool drop = i == 0 && step.metaspace.prepend != Metaspace::Prepend::never;
    tokens[i] = replaced(std::move(tokens[i]), step.metaspace.replacement, drop ? "" : " ");
  }
  return tokens;
}

/// A run of bytes that is no UTF-8 as a whole gives one U+FFFD for each of its bytes: so the tokenizers library does.
Tokens run(const ByteFallbackDecoder&, Tokens tokens, bool exact) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (exact || valid_prefix(bytes) == bytes.size()) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\xef\xbf\xbd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = named_byte(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  return out;
}

Tokens run(const FuseDecoder&, Tokens tokens, bool) { return {joined(tokens)}; }

Tokens run(const StripDecoder& step, Tokens tokens, bool) {
  for (std::string& token : tokens) {
    std::size_t begin = 0, end = token.size();
    if (step.content.empty()) continue;
    for (std::size_t i = 0; i < step.start && std::string_view(token).substr(begin).starts_with(step.content); ++i)
      begin += step.content.size();
    for (std::size_t i = 0; i < step.stop && std::string_view(token).substr(begin, end - begin).ends_with(step.content);
         ++i)
      end -= step.content.size();
    token = token.substr(begin, end - begin);
  }
  return tokens;
}

Tokens run(const ReplaceDecoder& step, Tokens tokens, bool) {
  const std::vector<NormalizerStep> replace{step.replace};
  for (std::string& token : tokens) token = normalize(replace, TracedText(token, 0, false)).text();
  return tokens;
}

Tokens run(const BpeDecoder& step, Tokens tokens, bool) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = replaced(std::move(tokens[i]), step.suffix, i + 1 == tokens.size() ? "" : " ");
  }
  return tokens;
}

std::string cleaned_up(std::string text) {
  constexpr std::array<std::pair<const char*, const char*>, 11> rules{{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" do not", " don't"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : rules) text = replaced(std::move(text), from, to);
  return text;
}

Tokens run(const WordPieceDecoder& step, Tokens tokens, bool) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i != 0) token = token.starts_with(step.prefix) ? token.substr(step.prefix.size()) : " " + token;
    if (step.cleanup) token = cleaned_up(std::move(token));
  }
  return tokens;
}

}  // namespace

std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens, bool exact) {
  for (const DecoderStep& step : steps) {
    tokens = std::visit([&](const auto& kind) { return run(kind, std::move(tokens), exact); }, step);
  }
  return joined(tokens);
}

}  // namespace kullback
