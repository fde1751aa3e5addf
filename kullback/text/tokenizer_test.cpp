#include "kullback/text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "kullback/base/error.h"
#include "kullback/text/byte_alphabet.h"
#include "kullback/text/byte_level_spec.h"
#include "kullback/text/utf8.h"

namespace kullback {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ids = std::vector<std::int32_t>;

/// All 256 bytes, then what the merges make, then added tokens.
BpeSpec invented(const std::vector<std::string>& merges, const std::string& pre = "gpt-2") {
  BpeSpec spec = byte_level_spec("invented", merges, {}, pre);
  const auto add = [&](const std::string& text, std::int64_t type) {
    spec.tokens.push_back(text);
    spec.types.push_back(type);
  };
  add("<|begin|>", 3);
  add("<|end|>", 3);
  add("<|end|>\n", 3);
  add("two words", 4);
  spec.special.bos = static_cast<std::int32_t>(spec.tokens.size()) - 4;
  spec.special.eos = static_cast<std::int32_t>(spec.tokens.size()) - 3;
  return spec;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text, bool parse_special = true) {
  std::vector<std::string> out;
  for (const std::int32_t id : tokenizer.encode(text, parse_special)) out.push_back(tokenizer.token_bytes(id));
  return out;
}

/// Byte-pair encoding as the paper states it: join the best pair everywhere it stands first, again and again.
std::vector<std::string> merged_the_slow_way(std::vector<std::string> symbols, const std::vector<std::string>& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto space = merges[i].find(' ', 1);
    ranks[{merges[i].substr(0, space), merges[i].substr(space + 1)}] = i;
  }
  while (true) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Tokenizer, MergesLowestRankFirstAndLeftmostAmongEquals) {
  const Tokenizer tokenizer(invented({"a a", "aa aa", "b c", "a b"}));
  EXPECT_THAT(pieces(tokenizer, "aaaaa"), ElementsAre("aaaa", "a"));
  EXPECT_THAT(pieces(tokenizer, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(pieces(tokenizer, "aab"), ElementsAre("aa", "b"));
}

TEST(Tokenizer, EqualsTheDefinitionOnRandomMergesAndWords) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> merges, symbols{"a", "b", "c", "d"};
    std::map<std::string, bool> known;
    while (merges.size() < 30) {
      const std::string left = symbols[random() % symbols.size()], right = symbols[random() % symbols.size()];
      if (left.size() + right.size() > 12 || !known.emplace(left + right, true).second) continue;
      merges.push_back(left + " " + right);
      symbols.push_back(left + right);
    }
    const Tokenizer tokenizer(invented(merges));
    for (const std::size_t length : {1u, 2u, 3u, 7u, 31u, 63u, 64u, 65u, 200u}) {
      std::string word;
      std::vector<std::string> letters;
      for (std::size_t i = 0; i < length; ++i) {
        letters.emplace_back(1, static_cast<char>('a' + random() % 4));
        word += letters.back();
      }
      const auto expected = merged_the_slow_way(letters, merges);
      EXPECT_EQ(pieces(tokenizer, word), expected) << word;
      EXPECT_EQ(pieces(tokenizer, word), expected) << word << " a second time, from the cache";
    }
  }
}

TEST(Tokenizer, EveryTextComesBackAsItWas) {
  std::mt19937 random(11);
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "tekken", "gpt-4o", "deepseek-v3", "falcon", "chatglm-bpe"}) {
    const Tokenizer tokenizer(invented({"a b", "Ġ a", "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©", "Ċ Ċ"}, pre));
    for (int round = 0; round < 300; ++round) {
      std::string text;
      const std::size_t length = random() % 60;
      for (std::size_t i = 0; i < length; ++i) {
        // Bytes of every kind: letters, blanks, halves of characters, whole characters, bytes that UTF-8 never has.
        switch (random() % 6) {
          case 0: text += static_cast<char>(random()); break;
          case 1: append_utf8(text, static_cast<char32_t>(random() % 0xd800)); break;
          case 2: append_utf8(text, 0x1f300 + static_cast<char32_t>(random() % 600)); break;
          case 3: text += " \n\t"[random() % 3]; break;
          default: text += static_cast<char>('a' + random() % 3);
        }
      }
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << pre;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text) << pre;
    }
  }
}

TEST(Tokenizer, ComposesForQwen) {
  const Tokenizer tokenizer(invented({}, "qwen2"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\xcc\x81")), "é");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab")), "한");  // three Hangul letters
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("x\xff\xcc\x81")), "x\xff\xcc\x81")
      << "no mark joins across an invalid byte";
}

TEST(Tokenizer, RangesCoverTheTextInOrder) {
  const Tokenizer tokenizer(invented({"a b", "Ġ a"}, "llama-bpe"));
  const std::string text = "ab<|end|> ab é \xff 12345<|begin|>";
  const Encoding encoding = tokenizer.encode_with_ranges(text);
  ASSERT_EQ(encoding.ids.size(), encoding.ranges.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    EXPECT_EQ(encoding.ranges[i].begin, at);
    EXPECT_EQ(text.substr(at, encoding.ranges[i].size()), tokenizer.token_bytes(encoding.ids[i]));
    at = encoding.ranges[i].end;
  }
  EXPECT_EQ(at, text.size());
}

TEST(Tokenizer, FindsAddedTokensLongestFirst) {
  const Tokenizer tokenizer(invented({}));
  EXPECT_THAT(pieces(tokenizer, "<|end|>"), ElementsAre("<|end|>"));
  EXPECT_THAT(pieces(tokenizer, "<|end|>\n"), ElementsAre("<|end|>\n"));
  EXPECT_THAT(pieces(tokenizer, "x<|end|>two words"), ElementsAre("x", "<|end|>", "two words"));
  EXPECT_EQ(pieces(tokenizer, "<|end").size(), 5u);
}

TEST(Tokenizer, LeavesSpecialTokensInTextAloneWhenTold) {
  const Tokenizer tokenizer(invented({}));
  EXPECT_EQ(pieces(tokenizer, "<|end|>", false).size(), 7u);
  EXPECT_THAT(pieces(tokenizer, "two words", false), ElementsAre("two words")) << "not special, only added";
}

TEST(Tokenizer, AddsWhatTheModelWantsOnce) {
  BpeSpec spec = invented({});
  spec.add_bos = true;
  const Tokenizer tokenizer(spec);
  const Ids plain = tokenizer.encode("ab");
  EXPECT_EQ(plain.front(), 'a') << "encode() adds nothing";
  EXPECT_EQ(tokenizer.add_special(plain).front(), *tokenizer.bos());
  EXPECT_EQ(tokenizer.add_special(tokenizer.add_special(plain)), tokenizer.add_special(plain)) << "no second beginning";
  EXPECT_EQ(tokenizer.add_special({}), (Ids{*tokenizer.bos()}));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer(invented({"Ġ a"}));
  EXPECT_EQ(tokenizer.vocabulary_size(), 261);
  EXPECT_EQ(tokenizer.token_id("Ġa"), 256);
  EXPECT_EQ(tokenizer.token_id("<|end|>"), *tokenizer.eos());
  EXPECT_EQ(tokenizer.token_id("nowhere"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos()));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_id("two words")));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_EQ(tokenizer.decode(Ids{*tokenizer.bos(), 'h', 'i', *tokenizer.eos()}, true), "hi");
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
}

TEST(Tokenizer, IgnoresMergesForWholeWordsOfLlama3) {
  BpeSpec spec = invented({"a b"}, "llama-bpe");
  spec.tokens[10] = "abc";  // a word that no merge makes
  const Tokenizer llama(spec);
  EXPECT_THAT(pieces(llama, "abc"), ElementsAre("abc"));
  spec.pre_tokenizer = "gpt-2";
  EXPECT_THAT(pieces(Tokenizer(spec), "abc"), ElementsAre("ab", "c"));
}

TEST(Tokenizer, SplitsAsEachModelDoes) {
  const auto words = [](const char* pre, const std::string& text) {
    // Merges of everything with everything would be one word a token; ranges of single bytes still show no borders, so
    // the splitter is asked itself.
    Section section(TracedText(text, 0, false), true);
    pre_tokenize(gguf_pre_tokenizer(pre).steps, section);
    std::vector<std::string> out;
    for (const Piece& piece : section.pieces) out.push_back(text.substr(piece.range.begin, piece.range.size()));
    return out;
  };
  EXPECT_THAT(words("gpt-2", "It's  2026\n\n x"), ElementsAre("It", "'s", " ", " 2026", "\n\n", " x"));
  EXPECT_THAT(words("smollm", "a½ 12"), ElementsAre("a", "½", " ", "1", "2"));
  EXPECT_THAT(words("llama-bpe", "I'LL pay 12345!\n\nok"),
              ElementsAre("I", "'LL", " pay", " ", "123", "45", "!\n\n", "ok"));
  EXPECT_THAT(words("qwen2", "x 123"), ElementsAre("x", " ", "1", "2", "3"));
  EXPECT_THAT(words("tekken", "HelloWorld 12"), ElementsAre("Hello", "World", " ", "1", "2"));
  EXPECT_THAT(words("gpt-4o", "don't 1234"), ElementsAre("don't", " ", "123", "4"));
  EXPECT_THAT(words("deepseek-v3", "中文abc 1234"), ElementsAre("中文", "abc", " ", "123", "4"));
  EXPECT_THAT(words("falcon", "a==1234"), ElementsAre("a", "==", "123", "4"));
  EXPECT_THAT(words("llama-bpe", "한국어 가"), ElementsAre("한국어", " 가"));
}

TEST(Tokenizer, WorksOnSeveralThreads) {
  const Tokenizer tokenizer(invented({"a b", "Ġ a", "ab c"}));
  const Ids expected = tokenizer.encode("abc ab abcab");
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      bool all = true;
      for (int i = 0; i < 2000; ++i) all = all && tokenizer.encode("abc ab abcab") == expected;
      same[t] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(same, ElementsAre(true, true, true, true));
}

TEST(Tokenizer, TakesLongWordsInOneGo) {
  const Tokenizer tokenizer(invented({"a a", "aa aa", "aaaa aaaa"}));
  EXPECT_EQ(tokenizer.encode(std::string(200000, 'a')).size(), 25000u);
  EXPECT_EQ(tokenizer.encode(std::string(200000, ' ')).size(), 200000u);
}

/// sentencepiece's rule: join the neighbours that make the piece of the highest score, the leftmost of equals.
std::vector<std::string> joined_by_score(std::vector<std::string> symbols,
                                         const std::map<std::string, double>& scores) {
  while (true) {
    double best = -1e9;
    std::size_t at = symbols.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = scores.find(symbols[i] + symbols[i + 1]);
      if (found != scores.end() && found->second > best) best = found->second, at = i;
    }
    if (at == symbols.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(SentencePieceTokenizer, JoinsByScoreAndComesBack) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    SentencePieceSpec spec;
    spec.name = "invented";
    const auto add = [&](const std::string& token, double score, std::int64_t type) {
      spec.tokens.push_back(token);
      spec.scores.push_back(score);
      spec.types.push_back(type);
    };
    add("<unk>", 0, 2);
    add("<s>", 0, 3);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, 6);
    std::map<std::string, double> scores;
    std::vector<std::string> pieces{"a", "b", "c", "\u2581"};
    for (const std::string& piece : pieces) add(piece, -1000, 1);
    while (scores.size() < 25) {
      const std::string piece = pieces[random() % pieces.size()] + pieces[random() % pieces.size()];
      if (piece.size() > 14 || !scores.emplace(piece, -static_cast<double>(scores.size())).second) continue;
      pieces.push_back(piece);
      add(piece, scores[piece], 1);
    }
    spec.special.bos = 1;
    spec.special.unknown = 0;
    const Tokenizer tokenizer(spec);
    EXPECT_EQ(tokenizer.add_special({}), (Ids{1}));
    for (int word = 0; word < 20; ++word) {
      std::string text;
      std::vector<std::string> symbols{"\u2581"};
      for (std::size_t i = 0; i < 1 + random() % 30; ++i) {
        text += "abc "[random() % 4];
        symbols.push_back(text.back() == ' ' ? "\u2581" : std::string(1, text.back()));
      }
      std::vector<std::string> ours;
      for (const std::int32_t id : tokenizer.encode(text)) ours.push_back(tokenizer.token_bytes(id));
      EXPECT_EQ(ours, joined_by_score(symbols, scores)) << text;
    }
    for (const std::string text : {"a b", " a", "é\xff中", "", "<s>a"})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text == "<s>a" ? "<s> a" : text);
    EXPECT_EQ(tokenizer.encode("<s>a")[0], 1);
  }
}

std::string message_of(const BpeSpec& spec) {
  try {
    Tokenizer tokenizer(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tokenizer, RefusesWhatDoesNotFitTogether) {
  BpeSpec spec = invented({});
  spec.merges = {"a zz"};
  EXPECT_THAT(message_of(spec), HasSubstr("invented: merge 0 (\"a\" and \"zz\") names"));
  spec.merges = {"ab"};
  EXPECT_THAT(message_of(spec), HasSubstr("is not two tokens"));
  spec = invented({});
  spec.pre_tokenizer = "smolm";
  EXPECT_THAT(message_of(spec), HasSubstr("\"smolm\" is not known (did you mean \"smollm\"?)"));
  spec = invented({});
  spec.types.pop_back();
  EXPECT_THAT(message_of(spec), HasSubstr("259 token types for 260 tokens"));
  spec = invented({});
  spec.special.eos = 400;
  EXPECT_THAT(message_of(spec), HasSubstr("has the id 400"));
  spec.tokens.clear();
  EXPECT_THAT(message_of(spec), HasSubstr("the vocabulary is empty"));
  EXPECT_THROW(Tokenizer(invented({})).decode(Ids{260}), Error);
}

}  // namespace
}  // namespace kullback
