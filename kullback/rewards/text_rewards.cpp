#include "kullback/rewards/text_rewards.h"

#include <algorithm>
#include <set>
#include <sstream>

#define ZLIB_CONST  // zlib reads its input
#include <zlib.h>

#include "kullback/base/error.h"
#include "kullback/base/parse.h"
#include "kullback/base/suggest.h"
#include "kullback/io/files.h"
#include "kullback/text/pattern.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

/// A reward of each response by itself.
template <class F>
Reward::Scores each(F reward_of) {
  return [reward_of](std::span<const PromptedResponse> responses) {
    std::vector<double> rewards;
    for (const PromptedResponse& one : responses) rewards.push_back(reward_of(one));
    return rewards;
  };
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool space = c.valid && is_space(c.value);
    if (!space && !inside) words.emplace_back();
    if (!space) words.back().append(text, at, c.size);
    inside = !space;
    at += c.size;
  }
  return words;
}

int64_t characters_of(const std::string& text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += code_point_at(text, at).size) ++count;
  return count;
}

/// An expression that matches a phrase as whole words, in upper or lower case.
Pattern whole_words(const std::string& phrase) {
  std::string quoted;
  for (const char c : phrase) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0 && c != ' ') quoted += '\\';
    quoted += c;
  }
  return Pattern("(?i)(?<!\\w)" + quoted + "(?!\\w)");
}

std::vector<std::string> phrases_of(const std::string& written) {
  const bool file = written.starts_with('@');
  std::istringstream stream(file ? read_text(written.substr(1)) : written);
  std::vector<std::string> phrases;
  for (std::string phrase; std::getline(stream, phrase, file ? '\n' : ',');) {
    const size_t begin = phrase.find_first_not_of(" \t\r"), end = phrase.find_last_not_of(" \t\r");
    if (begin != std::string::npos) phrases.push_back(phrase.substr(begin, end - begin + 1));
  }
  if (phrases.empty()) fail("reward keywords: \"{}\" holds no word", written);
  return phrases;
}

size_t compressed_size(const std::string& text) {
  z_stream stream{};
  constexpr int raw = -15, memory = 9;  // no header and no checksum, which would count for much in short texts
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, raw, memory, Z_DEFAULT_STRATEGY) != Z_OK)
    fail("reward compression: out of memory");
  std::vector<unsigned char> into(deflateBound(&stream, text.size()));
  stream.next_in = reinterpret_cast<const unsigned char*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = into.data(), stream.avail_out = static_cast<uInt>(into.size());
  deflate(&stream, Z_FINISH);
  const size_t size = stream.total_out;
  deflateEnd(&stream);
  return size;
}

}  // namespace

Reward::Scores length_reward(const std::string& unit) {
  const std::vector<std::string> units{"tokens", "words", "characters"};
  if (std::ranges::find(units, unit) == units.end())
    fail("reward length: \"{}\" is none of {}{}", unit, listing(units), suggestion(unit, units));
  return each([unit](const PromptedResponse& one) {
    if (unit == "words") return static_cast<double>(words_of(one.response).size());
    if (unit == "characters") return static_cast<double>(characters_of(one.response));
    if (one.tokens < 0) fail("reward length: the number of tokens is not known; length:words needs none");
    return static_cast<double>(one.tokens);
  });
}

Reward::Scores regex_reward(const std::string& expression) {
  return each([pattern = Pattern(expression)](const PromptedResponse& one) {
    return pattern.matches(with_replacements(one.response)).empty() ? 0.0 : 1.0;
  });
}

Reward::Scores regex_count_reward(const std::string& expression) {
  return each([pattern = Pattern(expression)](const PromptedResponse& one) {
    return static_cast<double>(pattern.matches(with_replacements(one.response)).size());
  });
}

Reward::Scores keywords_reward(const std::string& words) {
  std::vector<Pattern> patterns;
  for (const std::string& phrase : phrases_of(words)) patterns.push_back(whole_words(phrase));
  return each([patterns](const PromptedResponse& one) {
    const std::string text = with_replacements(one.response);
    const auto found = std::ranges::count_if(patterns, [&](const Pattern& p) { return !p.matches(text).empty(); });
    return static_cast<double>(found) / static_cast<double>(patterns.size());
  });
}

Reward::Scores repetition_reward(const std::string& n) {
  const auto parsed = parsed_number<int64_t>(n);
  if (!parsed || *parsed < 1) fail("reward repetition: \"{}\" is no number of words", n);
  return each([length = static_cast<size_t>(*parsed)](const PromptedResponse& one) {
    const std::vector<std::string> words = words_of(one.response);
    if (words.size() < length) return 0.0;
    std::set<std::vector<std::string>> distinct;
    const size_t runs = words.size() - length + 1;
    for (size_t i = 0; i < runs; ++i)
      distinct.emplace(words.begin() + static_cast<std::ptrdiff_t>(i),
                       words.begin() + static_cast<std::ptrdiff_t>(i + length));
    return static_cast<double>(distinct.size()) / static_cast<double>(runs) - 1;
  });
}

Reward::Scores compression_reward(const std::string&) {
  return each([](const PromptedResponse& one) {
    if (one.response.empty()) return 0.0;
    return static_cast<double>(compressed_size(one.response)) / static_cast<double>(one.response.size());
  });
}

}  // namespace kullback
