#include "kullback/report/table.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kullback/report/escape.h"
#include "kullback/report/markup_test.h"

namespace kullback {
namespace {

using testing::HasSubstr;
using testing::Not;

Table methods() {
  Table table{"Methods",
              {text_column("Method"), number_column("Accuracy", percent(1)), number_column("KL", fixed(3), "nats"),
               text_column("Note")},
              {}};
  table.rows = {{"dpo", Interval{0.925, 0.84, 0.98}, 0.0412, Cell("best", Tone::good)},
                {"日本語", 0.5, std::nan(""), "wide, \"quoted\""},
                {"empty"}};
  return table;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    result.push_back(text.substr(begin, end - begin));
  return result;
}

TEST(TableTerminal, AlignsWideCharacters) {
  EXPECT_EQ(table_terminal(methods()),
            "Methods\n"
            "Method              Accuracy  KL (nats)  Note\n"
            "──────  ────────────────────  ─────────  ──────────────\n"
            "dpo     92.5% [84.0%, 98.0%]      0.041  best\n"
            "日本語                 50.0%        n/a  wide, \"quoted\"\n"
            "empty\n");
}

TEST(TableTerminal, ColoursOnlyWhenAsked) {
  EXPECT_THAT(table_terminal(methods()), Not(HasSubstr("\x1b")));
  EXPECT_THAT(table_terminal(methods(), {true, 0}), HasSubstr("\x1b[32mbest"));
}

TEST(TableTerminal, ShrinksTextNotNumbers) {
  Table table{"", {text_column("Prompt"), number_column("n")}, {{std::string(200, 'x'), 123456789}}};
  for (const std::string& line : lines(table_terminal(table, {false, 40}))) EXPECT_LE(display_width(line), 40U);
  EXPECT_THAT(table_terminal(table, {false, 40}), HasSubstr("xxx…  123456789"));
  EXPECT_THAT(table_terminal(table, {false, 5}), HasSubstr("123456789"));  // too narrow: columns of eight remain
}

TEST(TableTerminal, KeepsCellsOnOneLineAndShowsNoControlCharacters) {
  const Table table{"", {text_column("a")}, {{"two\nlines\x1b[31m"}}};
  EXPECT_EQ(lines(table_terminal(table)).size(), 3U);
  EXPECT_THAT(table_terminal(table), Not(HasSubstr("\x1b")));
}

TEST(TableTerminal, Empty) {
  EXPECT_EQ(table_terminal({}), "\n\n");
  EXPECT_EQ(table_terminal({"", {text_column("a")}, {}}), "a\n─\n");
}

TEST(TerminalStyle, NeitherColoursNorWidthForAFile) {
  std::FILE* file = std::tmpfile();
  const TerminalStyle style = terminal_style(file);
  std::fclose(file);
  EXPECT_FALSE(style.colours);
  EXPECT_EQ(style.width, 0);
}

TEST(TableMarkdown, IsATable) {
  EXPECT_EQ(table_markdown(methods()),
            "**Methods**\n\n"
            "| Method | Accuracy | KL (nats) | Note |\n"
            "| :--- | ---: | ---: | :--- |\n"
            "| dpo | 92.5% \\[84.0%, 98.0%\\] | 0.041 | best |\n"
            "| 日本語 | 50.0% | n/a | wide, \"quoted\" |\n"
            "| empty |  |  |  |\n");
}

TEST(TableHtml, CarriesValuesForSorting) {
  const std::string html = table_html(methods());
  EXPECT_EQ(markup_fault(html), "");
  EXPECT_THAT(html, HasSubstr("data-value=\"0.925\">92.5% <span class=\"bounds\">[84.0%, 98.0%]</span>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"right\">n/a</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"left good\">best</td>"));
}

TEST(TableHtml, SaysWhatItLeavesOut) {
  Table table{"", {number_column("n")}, {}};
  for (int i = 0; i < 10; ++i) table.rows.push_back({i});
  EXPECT_THAT(table_html(table, 3), HasSubstr("The first 3 of 10 rows are shown."));
  EXPECT_THAT(table_html(table, 10), Not(HasSubstr("rows are shown")));
}

TEST(TableCsv, IntervalsBecomeThreeColumns) {
  EXPECT_EQ(table_csv(methods()),
            "Method,Accuracy,Accuracy_low,Accuracy_high,KL,Note\r\n"
            "dpo,0.925,0.84,0.98,0.0412,best\r\n"
            "日本語,0.5,,,,\"wide, \"\"quoted\"\"\"\r\n"
            "empty,,,,,\r\n");
}

TEST(TableJson, NamesTheCells) {
  EXPECT_EQ(
      table_json(methods()).dump(),
      R"([{"Method":"dpo","Accuracy":{"value":0.925,"low":0.84,"high":0.98},"KL":0.0412,"Note":"best"},)"
      R"({"Method":"日本語","Accuracy":0.5,"KL":null,"Note":"wide, \"quoted\""},{"Method":"empty","Accuracy":null,"KL":null,"Note":null}])");
}

TEST(Table, CellsOfEveryKind) {
  EXPECT_EQ(cell_text({}), "");
  EXPECT_EQ(cell_text(true), "yes");
  EXPECT_EQ(cell_text(std::int64_t{1} << 40), "1099511627776");
  EXPECT_EQ(cell_text(Cell(0.5).with(percent(0))), "50%");
}

TEST(Table, TooManyCellsAreRefused) {
  const Table table{"t", {text_column("a")}, {{"x", "y"}}};
  EXPECT_THROW(table_terminal(table), std::invalid_argument);
  EXPECT_THROW(table_html(table), std::invalid_argument);
  EXPECT_THROW(table_csv(table), std::invalid_argument);
}

}  // namespace
}  // namespace kullback
