#include "kullback/report/escape.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/report/markup_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string mark = "\uFFFD";

TEST(CleanUtf8, KeepsWhatIsValid) {
  const std::string text = "plain, tab\tand\nnewline; ½ é 한국어 日本語 עברית 🙂 \u2028";
  EXPECT_EQ(clean_utf8(text), text);
  EXPECT_EQ(clean_utf8(""), "");
}

TEST(CleanUtf8, ReplacesEachBadByteAndControlCharacter) {
  EXPECT_EQ(clean_utf8("a\xff"
                       "b"),
            "a" + mark + "b");
  EXPECT_EQ(clean_utf8("\xc3"), mark);                                   // cut off
  EXPECT_EQ(clean_utf8("\xe2\x82"), mark + mark);                        // cut off
  EXPECT_EQ(clean_utf8("\xc0\xaf"), mark + mark);                        // overlong
  EXPECT_EQ(clean_utf8("\xed\xa0\x80"), mark + mark + mark);             // a surrogate
  EXPECT_EQ(clean_utf8("\xf4\x90\x80\x80"), mark + mark + mark + mark);  // beyond U+10FFFF
  EXPECT_EQ(clean_utf8(std::string("\0x", 2)), mark + "x");
  EXPECT_EQ(clean_utf8("\x1b[31m\x7f"), mark + "[31m" + mark);
  EXPECT_EQ(clean_utf8("\xc2\x85"), mark);      // a C1 control
  EXPECT_EQ(clean_utf8("\xef\xbf\xbe"), mark);  // U+FFFE
  EXPECT_EQ(clean_utf8("a\r\nb\rc"), "a\nb" + mark + "c");
}

TEST(CleanUtf8, AnyBytesComeOutValid) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_EQ(utf8_fault(clean_utf8(bytes)), "");
    EXPECT_EQ(clean_utf8(clean_utf8(bytes)), clean_utf8(bytes));
    EXPECT_EQ(markup_fault("<p a=\"" + escape_html(bytes) + "\">" + escape_html(bytes) + "</p>"), "");
    EXPECT_NO_THROW(Json::parse(json_for_script(Json(bytes))));
  }
}

TEST(EscapeHtml, EscapesAllFive) {
  EXPECT_EQ(escape_html("<a b=\"c\" d='e'>&amp;"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;");
}

TEST(JsonForScript, CannotEndItsElementAndComesBackTheSame) {
  const std::string text = "</script><!-- <script> ]]> & \" \\ \n \u2028 \x7f";
  const std::string json = json_for_script(Json{{text, text}});
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_THAT(json, Not(HasSubstr("\x7f")));
  EXPECT_EQ(Json::parse(json)[text], text);
  EXPECT_EQ(json_for_script(Json{1.5, std::nan(""), HUGE_VAL}), "[1.5,null,null]");
}

TEST(EscapeMarkdown, KeepsACellOnOneLine) { EXPECT_EQ(escape_markdown("a|b\nc *d* <e>"), "a\\|b c \\*d\\* \\<e\\>"); }

TEST(EscapeCsv, QuotesWhereNeeded) {
  EXPECT_EQ(escape_csv("plain text"), "plain text");
  EXPECT_EQ(escape_csv("a,b"), "\"a,b\"");
  EXPECT_EQ(escape_csv("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(escape_csv("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(escape_csv(" x"), "\" x\"");
  EXPECT_EQ(escape_csv(""), "");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("½é‖"), 3U);
  EXPECT_EQ(display_width("日本語"), 6U);
  EXPECT_EQ(display_width("한국어"), 6U);
  EXPECT_EQ(display_width("🙂"), 2U);
  EXPECT_EQ(display_width("e\u0301"), 1U);  // a combining accent
}

TEST(ClipToWidth, EndsWithAnEllipsisAndNeverExceeds) {
  EXPECT_EQ(clip_to_width("abc", 3), "abc");
  EXPECT_EQ(clip_to_width("abcd", 3), "ab…");
  EXPECT_EQ(clip_to_width("日本語", 5), "日本…");
  EXPECT_EQ(clip_to_width("日本語", 4), "日…");
  EXPECT_EQ(clip_to_width("abc", 0), "");
  EXPECT_EQ(clip_to_width("abc", 1), "…");
  for (std::size_t width = 0; width < 12; ++width)
    EXPECT_LE(display_width(clip_to_width("a日b本e\u0301c語🙂", width)), width);
}

TEST(ClipToBytes, CutsBetweenCharacters) {
  bool cut = false;
  EXPECT_EQ(clip_to_bytes("aé日🙂", 3, &cut), "aé");
  EXPECT_TRUE(cut);
  EXPECT_EQ(clip_to_bytes("aé日🙂", 2), "a");
  EXPECT_EQ(clip_to_bytes("aé日🙂", 0), "");
  EXPECT_EQ(clip_to_bytes("aé", 3, &cut), "aé");
  EXPECT_FALSE(cut);
}

}  // namespace
}  // namespace kullback
