#include "kullback/text/utf8.h"

#include <gtest/gtest.h>

#include "kullback/text/byte_alphabet.h"

namespace kullback {
namespace {

TEST(Utf8, WritesAndReadsEveryCodePoint) {
  for (char32_t c = 0; c <= 0x10ffff; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint point = code_point_at(text, 0);
    ASSERT_TRUE(point.valid) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(point.value, c);
    ASSERT_EQ(point.size, text.size());
  }
}

TEST(Utf8, RefusesWhatIsNotWellFormed) {
  for (const std::string bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
    EXPECT_FALSE(code_point_at(bad, 0).valid);
    EXPECT_EQ(valid_prefix("ok" + bad), 2u);
  }
}

// The examples of Unicode 15, table 3-8 and 3-11.
TEST(Utf8, ReplacesMaximalParts) {
  EXPECT_EQ(with_replacements("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\x41");
  EXPECT_EQ(with_replacements("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), "\ufffd\ufffd\ufffd\ufffd\x41");
  EXPECT_EQ(with_replacements("plain"), "plain");
}

TEST(Utf8, KnowsClasses) {
  EXPECT_TRUE(is_letter(U'ß') && is_letter(U'中') && !is_letter(U'1') && !is_letter(U'_'));
  EXPECT_TRUE(is_numeric(U'½') && is_numeric(U'Ⅷ') && is_numeric(U'³') && is_numeric(U'٣') && !is_numeric(U'a'));
  EXPECT_TRUE(is_space(U'\u0085') && is_space(U'\u00a0') && is_space(U'\u3000') && !is_space(U'\u200b') &&
              !is_space(U'\u180e'));
  EXPECT_TRUE(is_word(U'é') && is_word(U'_') && is_word(U'\u0301') && !is_word(U'-'));
}

TEST(ByteAlphabet, IsItsOwnInverse) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::string text = to_byte_alphabet(bytes);
  EXPECT_EQ(from_byte_alphabet(text), bytes);
  EXPECT_EQ(to_byte_alphabet(" \n!"), "ĠĊ!");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt) << "a space is no letter of the alphabet";
  EXPECT_EQ(from_byte_alphabet("中"), std::nullopt);
}

}  // namespace
}  // namespace kullback
