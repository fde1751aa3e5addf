#include "kullback/report/page.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/base/error.h"
#include "kullback/report/invented_run_test.h"
#include "kullback/report/look_test.h"
#include "kullback/report/markup_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string nasty =
    "</script><!--<b a=\"1\" b='2'>&amp; \x01\x02\x7f \xff\xfe\xc3 \xed\xa0\x80 \u2028 ]]> {{}} % \\";

Json embedded(const std::string& page) {
  const std::string start = "id=\"data\">";
  const std::size_t begin = page.find(start) + start.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Page everything(const std::string& text) {
  Page page;
  page.title = text;
  page.summary = {text};
  page.numbers = {{text, Interval{0.5, 0.4, 0.6}, Interval{0.9, 0.8, 0.95}, percent(1), text, Better::higher, text}};
  Plot plot{.title = text, .note = text, .x = {.title = text, .unit = text}, .y = {.title = text, .unit = text}};
  plot.series = {
      {.name = text, .x = {1, 2}, .y = {1, 2}, .labels = {text, text}},
      {.name = text, .mark = Mark::points, .x = {1, 2}, .y = {1, 2}, .labels = {text, text}, .show_labels = true}};
  plot.references = {{ReferenceLine::Direction::horizontal, 1.5, text}};
  Plot bars{.title = text, .x = {.categories = {text, text}}};
  bars.series = {{.name = text, .mark = Mark::bars, .x = {0, 1}, .y = {1, 2}}};
  Table table{text,
              {text_column(text), number_column(text, significant(3), text)},
              {{text, 1.5}, {Cell(text, Tone::bad), Interval{1, 0, 2}}}};
  page.sections = {
      {text,
       {Paragraph{text}, Plots{{plot}}, Plots{{plot, bars}}, table, Samples{{{text, {{text, text, text}}}}},
        ShadedText{text, text, text, {{text, 0.5, text}, {text, 0, ""}}}, Code{text, text}, Code{text, text, true}}}};
  page.data = Json{{"text", text}};
  page.file_name = text;
  page.footer = text;
  return page;
}

TEST(Page, NothingBreaksOutOfItsPlace) {
  const std::string page = page_html(everything(nasty));
  EXPECT_EQ(markup_fault(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<b a")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  const Json data = embedded(page);
  EXPECT_EQ(data["plots"].size(), 3U);
  EXPECT_EQ(data["tables"].size(), 1U);
  EXPECT_THAT(data["extra"]["text"].get<std::string>(), HasSubstr("</script><!--<b a=\"1\""));
  EXPECT_EQ(data["numbers"][0]["after"]["high"], 0.95);
}

TEST(Page, EmptyTextsAndAnEmptyPage) {
  EXPECT_EQ(markup_fault(page_html(everything(""))), "");
  EXPECT_EQ(markup_fault(page_html({})), "");
}

TEST(Page, LoadsNothing) {
  const std::string page = page_html(everything("x"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
  EXPECT_THAT(page, Not(HasSubstr("url(")));
}

TEST(Page, TooMuchIsCutWithANoteUntilItFits) {
  Page page;
  page.title = "large";
  Samples samples;
  for (int i = 0; i < 500; ++i)
    samples.samples.push_back(
        {std::string(20'000, 'p'), {{"before", std::string(20'000, 'b'), ""}, {"after", "short", ""}}});
  Plots plots;
  for (int p = 0; p < 30; ++p) {
    Series series{.name = "noise"};
    for (int i = 0; i < 100'000; ++i) {
      series.x.push_back(i);
      series.y.push_back(i % 97 * 0.01);
    }
    plots.plots.push_back({.title = "plot", .series = {series, series}});
  }
  Table table{"", {number_column("n")}, {}};
  for (int i = 0; i < 50'000; ++i) table.rows.push_back({i});
  page.sections = {{"all", {samples, plots, table, Code{"log", std::string(3'000'000, 'x'), true}}}};
  const std::string document = page_html(page);
  EXPECT_LE(document.size(), 2'000'000U);
  EXPECT_GT(document.size(), 100'000U);
  EXPECT_EQ(markup_fault(document), "");
  EXPECT_THAT(document, HasSubstr("of 500 samples are shown"));
  EXPECT_THAT(document, HasSubstr("of 50000 rows are shown"));
  EXPECT_THAT(document, HasSubstr("of 20000 bytes are shown"));
  EXPECT_EQ(embedded(document)["plots"][0]["series"][0]["thinned_from"], 100'000);
}

TEST(Page, SaysWhenNothingHelps) {
  Page page;
  page.title = "huge";
  page.data["blob"] = std::string(3'000'000, 'x');
  try {
    page_html(page);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"huge\" takes 2.9 MiB"));
  }
}

TEST(Page, LongTextsAreCutBetweenCharacters) {
  Page page;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "é½";
  page.sections = {{"", {Samples{{{text, {}}}}}}};
  const std::string document = page_html(page);
  EXPECT_EQ(utf8_fault(document), "");
  EXPECT_THAT(document, Not(HasSubstr("\uFFFD")));
}

TEST(ChangeTone, IsColouredOnlyWhereIntervalsLieApart) {
  const Interval low{0.5, 0.4, 0.6}, near{0.6, 0.5, 0.7}, high{0.9, 0.8, 1.0};
  EXPECT_EQ(change_tone(low, high, Better::higher), Tone::good);
  EXPECT_EQ(change_tone(high, low, Better::higher), Tone::bad);
  EXPECT_EQ(change_tone(low, high, Better::lower), Tone::bad);
  EXPECT_EQ(change_tone(low, near, Better::higher), Tone::plain);
  EXPECT_EQ(change_tone(low, high, Better::neither), Tone::plain);
  EXPECT_EQ(change_tone({}, high, Better::higher), Tone::plain);
  EXPECT_EQ(change_tone({0.5}, {0.6}, Better::higher), Tone::good);
}

TEST(Page, EveryKindOfBlock) {
  Page page;
  page.title = "Compare: base and aligned";
  page.summary = {"Exact divergences on 40 held-out responses"};
  page.numbers = {
      {"KL(aligned ‖ base)", {}, {0.0412, 0.037, 0.046}, significant(3), "nats/token", Better::neither, "exact"}};
  ShadedText shaded{"Where the two models differ most", "KL(aligned ‖ base)", "nats", {}};
  const char* words[] = {"Put",      " the",   " egg",  " in",   " boiling", " water", " for", " 7",
                         " minutes", ",",      " then", " in",   " cold",    " water", ".",    "\n",
                         "It",       " comes", " out",  " just", " set",     "."};
  for (std::size_t i = 0; i < std::size(words); ++i)
    shaded.pieces.push_back({words[i], std::abs(std::sin(static_cast<double>(i * i))), "top of base: \" a\" 0.31"});
  Table table{"Methods",
              {text_column("Method"), number_column("Accuracy", percent(1)),
               number_column("KL", significant(3), "nats/token"), text_column("Note")},
              {}};
  table.rows = {{"dpo", Interval{0.925, 0.84, 0.98}, Interval{0.041, 0.037, 0.045}, Cell("best", Tone::good)},
                {"ipo", Interval{0.875, 0.78, 0.94}, Interval{0.038, 0.035, 0.042}, ""},
                {"simpo", Interval{0.81, 0.70, 0.90}, std::nan(""), Cell("no reference", Tone::muted)}};
  page.sections = {{"Frontier", {Plots{{invented::frontier()}}, table}},
                   {"Texts", {shaded, Code{"Command", "kullback compare A B --data held-out.jsonl"}}}};
  const std::string document = page_html(page);
  EXPECT_EQ(markup_fault(document), "");
  std::ofstream(look_folder("blocks") / "page.html") << document;
}

}  // namespace
}  // namespace kullback
