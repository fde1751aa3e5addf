#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/report/number.h"

namespace kullback {

enum class Align { left, right, centre };
enum class Tone { plain, muted, strong, good, bad };

struct Cell {
  std::variant<std::monostate, std::string, double, std::int64_t, bool, Interval> value;
  Tone tone = Tone::plain;
  std::optional<NumberFormat> format = {};  ///< else the column's

  Cell() = default;  ///< an empty cell
  Cell(const char* text, Tone t = Tone::plain) : value(std::string(text)), tone(t) {}
  Cell(std::string text, Tone t = Tone::plain) : value(std::move(text)), tone(t) {}
  Cell(double number, Tone t = Tone::plain) : value(number), tone(t) {}
  Cell(std::int64_t number, Tone t = Tone::plain) : value(number), tone(t) {}
  Cell(int number, Tone t = Tone::plain) : value(std::int64_t{number}), tone(t) {}
  Cell(bool truth, Tone t = Tone::plain) : value(truth), tone(t) {}
  Cell(Interval interval, Tone t = Tone::plain) : value(interval), tone(t) {}
  Cell with(NumberFormat own) const {
    Cell cell = *this;
    cell.format = own;
    return cell;
  }
};

struct Column {
  std::string name;
  Align align = Align::left;
  NumberFormat format = {};
  std::string unit = {};  ///< shown in brackets behind the name
};
inline Column text_column(std::string name) { return {std::move(name), Align::left}; }
inline Column number_column(std::string name, NumberFormat format = {}, std::string unit = {}) {
  return {std::move(name), Align::right, format, std::move(unit)};
}

/// One table, for every place where it can be shown. Rows shorter than the columns end in empty cells; longer ones
/// throw std::invalid_argument when the table is rendered.
struct Table {
  std::string title = {};
  std::vector<Column> columns = {};
  std::vector<std::vector<Cell>> rows = {};
};

/// A cell as text, without colours, in its own format or else in `format`. Empty cells are "".
std::string cell_text(const Cell& cell, const NumberFormat& format = {});

struct TerminalStyle {
  bool colours = false;
  int width = 0;  ///< columns of the terminal, 0: no limit. Wider tables have their widest text columns cut.
};
/// The style for an open stream: colours and width only where it is a terminal; no colours where NO_COLOR is set or
/// TERM is "dumb".
TerminalStyle terminal_style(std::FILE* stream);

std::string table_terminal(const Table& table, const TerminalStyle& style = {});
std::string table_markdown(const Table& table);
/// A `<table class="sortable">`; numbers carry `data-value` for sorting. At most `row_limit` rows, with a note on the
/// rest.
std::string table_html(const Table& table, std::size_t row_limit = 2000);
/// RFC 4180 with a header line. A column with intervals becomes three: name, name_low, name_high. Numbers in full.
std::string table_csv(const Table& table);
/// {"value", "low", "high"}; infinities are "inf" and "-inf", what is not known is null.
Json figure_json(const Interval& interval);
/// An array of one object a row, keyed by column names.
Json table_json(const Table& table);

}  // namespace kullback
