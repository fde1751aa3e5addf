#include "kullback/report/table.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>

#include "kullback/base/terminal.h"
#include "kullback/report/escape.h"

namespace kullback {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

void check(const Table& table) {
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (table.rows[r].size() > table.columns.size()) {
      throw std::invalid_argument(fmt::format("table \"{}\": row {} has {} cells for {} columns", table.title, r,
                                              table.rows[r].size(), table.columns.size()));
    }
  }
}

const Cell& cell_at(const std::vector<Cell>& row, std::size_t column) {
  static const Cell empty;
  return column < row.size() ? row[column] : empty;
}

std::string heading(const Column& column) {
  return column.unit.empty() ? column.name : fmt::format("{} ({})", column.name, column.unit);
}

std::string one_line(std::string_view text) {
  std::string line = clean_utf8(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

std::string full_number(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

bool has_intervals(const Table& table, std::size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [&](const auto& row) { return std::holds_alternative<Interval>(cell_at(row, column).value); });
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::size_t used = display_width(text), room = width > used ? width - used : 0;
  const std::size_t before = align == Align::left ? 0 : align == Align::right ? room : room / 2;
  return std::string(before, ' ') + text + std::string(room - before, ' ');
}

std::string coloured(const std::string& text, Tone tone) {
  const char* code = "";
  switch (tone) {
    case Tone::plain: return text;
    case Tone::muted: code = "2"; break;
    case Tone::strong: code = "1"; break;
    case Tone::good: code = "32"; break;
    case Tone::bad: code = "31"; break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

// Takes columns from the widest text columns until the table fits, but leaves each at least eight.
void shrink(std::vector<std::size_t>& widths, const Table& table, int terminal_width) {
  if (terminal_width <= 0 || widths.empty()) return;
  std::size_t total = 2 * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  while (total > static_cast<std::size_t>(terminal_width)) {
    std::size_t widest = widths.size();
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (table.columns[c].align == Align::right || widths[c] <= 8) continue;
      if (widest == widths.size() || widths[c] > widths[widest]) widest = c;
    }
    if (widest == widths.size()) return;
    --widths[widest];
    --total;
  }
}

std::string trimmed_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

const char* html_class(Align align) {
  return align == Align::right ? "right" : align == Align::centre ? "centre" : "left";
}

const char* html_class(Tone tone) {
  switch (tone) {
    case Tone::plain: return "";
    case Tone::muted: return " muted";
    case Tone::strong: return " strong";
    case Tone::good: return " good";
    case Tone::bad: return " bad";
  }
  return "";
}

std::string sort_value(const Cell& cell) {
  return std::visit(
      Overloaded{[](double v) { return std::isfinite(v) ? fmt::format(" data-value=\"{}\"", v) : std::string(); },
                 [](std::int64_t v) { return fmt::format(" data-value=\"{}\"", v); },
                 [](bool v) { return fmt::format(" data-value=\"{}\"", v ? 1 : 0); },
                 [](const Interval& v) {
                   return std::isfinite(v.value) ? fmt::format(" data-value=\"{}\"", v.value) : std::string();
                 },
                 [](const auto&) { return std::string(); }},
      cell.value);
}

// The bounds apart, so that a narrow screen can put them on a line of their own.
std::string html_text(const Cell& cell, const NumberFormat& format) {
  const auto* interval = std::get_if<Interval>(&cell.value);
  const std::string text = cell_text(cell, format);
  const std::size_t bounds = interval == nullptr ? std::string::npos : text.find(" [");
  if (bounds == std::string::npos) return escape_html(text);
  return fmt::format("{} <span class=\"bounds\">{}</span>", escape_html(text.substr(0, bounds)),
                     escape_html(text.substr(bounds + 1)));
}

Json number_json(double v) {
  if (std::isnan(v)) return nullptr;
  return std::isinf(v) ? Json(v > 0 ? "inf" : "-inf") : Json(v);
}

Json json_value(const Cell& cell) {
  return std::visit(
      Overloaded{[](std::monostate) { return Json(nullptr); }, [](const std::string& v) { return Json(clean_utf8(v)); },
                 [](const Interval& v) { return figure_json(v); }, [](double v) { return number_json(v); },
                 [](const auto& v) { return Json(v); }},
      cell.value);
}

}  // namespace

std::string cell_text(const Cell& cell, const NumberFormat& column_format) {
  const NumberFormat format = cell.format.value_or(column_format);
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); }, [](const std::string& v) { return v; },
                 [&](double v) { return number_text(v, format); }, [](std::int64_t v) { return fmt::format("{}", v); },
                 [](bool v) { return std::string(v ? "yes" : "no"); },
                 [&](const Interval& v) { return number_text(v, format); }},
      cell.value);
}

TerminalStyle terminal_style(std::FILE* stream) {
  if (!is_terminal(stream)) return {};
  winsize size{};
  const bool known = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return {shows_colours(stream), known ? size.ws_col : 80};
}

std::string table_terminal(const Table& table, const TerminalStyle& style) {
  check(table);
  const std::size_t columns = table.columns.size();
  std::vector<std::size_t> widths(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    widths[c] = display_width(one_line(heading(table.columns[c])));
    for (const auto& row : table.rows) {
      widths[c] = std::max(widths[c], display_width(one_line(cell_text(cell_at(row, c), table.columns[c].format))));
    }
  }
  shrink(widths, table, style.width);

  const auto line = [&](auto&& text_of, auto&& tone_of) {
    std::string result;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string text =
          padded(clip_to_width(one_line(text_of(c)), widths[c]), widths[c], table.columns[c].align);
      if (c > 0) result += "  ";
      result += style.colours ? coloured(text, tone_of(c)) : text;
    }
    return trimmed_right(std::move(result)) + "\n";
  };
  std::string result;
  if (!table.title.empty())
    result += (style.colours ? coloured(one_line(table.title), Tone::strong) : one_line(table.title)) + "\n";
  result += line([&](std::size_t c) { return heading(table.columns[c]); }, [](std::size_t) { return Tone::strong; });
  std::string rule;
  for (std::size_t c = 0; c < columns; ++c) {
    if (c > 0) rule += "  ";
    for (std::size_t i = 0; i < widths[c]; ++i) rule += "─";
  }
  result += (style.colours ? coloured(rule, Tone::muted) : rule) + "\n";
  for (const auto& row : table.rows) {
    result += line([&](std::size_t c) { return cell_text(cell_at(row, c), table.columns[c].format); },
                   [&](std::size_t c) { return cell_at(row, c).tone; });
  }
  return result;
}

std::string table_markdown(const Table& table) {
  check(table);
  std::string result;
  if (!table.title.empty()) result += fmt::format("**{}**\n\n", escape_markdown(table.title));
  std::string rule = "|";
  result += "|";
  for (const Column& column : table.columns) {
    result += fmt::format(" {} |", escape_markdown(heading(column)));
    rule += column.align == Align::right ? " ---: |" : column.align == Align::centre ? " :---: |" : " :--- |";
  }
  result += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    result += "|";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      result += fmt::format(" {} |", escape_markdown(cell_text(cell_at(row, c), table.columns[c].format)));
    }
    result += "\n";
  }
  return result;
}

std::string table_html(const Table& table, std::size_t row_limit) {
  check(table);
  std::string result = "<div class=\"table-wrap\"><table class=\"sortable\">";
  if (!table.title.empty()) result += fmt::format("<caption>{}</caption>", escape_html(table.title));
  result += "<thead><tr>";
  for (const Column& column : table.columns) {
    result += fmt::format("<th scope=\"col\" class=\"{}\" aria-sort=\"none\"><button type=\"button\">{}</button></th>",
                          html_class(column.align), escape_html(heading(column)));
  }
  result += "</tr></thead><tbody>";
  const std::size_t shown = std::min(table.rows.size(), row_limit);
  for (std::size_t r = 0; r < shown; ++r) {
    result += "<tr>";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = cell_at(table.rows[r], c);
      result += fmt::format("<td class=\"{}{}\"{}>{}</td>", html_class(table.columns[c].align), html_class(cell.tone),
                            sort_value(cell), html_text(cell, table.columns[c].format));
    }
    result += "</tr>";
  }
  result += "</tbody></table>";
  if (shown < table.rows.size()) {
    result += fmt::format("<p class=\"muted\">The first {} of {} rows are shown.</p>", shown, table.rows.size());
  }
  return result + "</div>";
}

std::string table_csv(const Table& table) {
  check(table);
  std::string result;
  const auto add = [&](const std::string& field, bool first) { result += (first ? "" : ",") + escape_csv(field); };
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const std::string& name = table.columns[c].name;
    add(name, c == 0);
    if (has_intervals(table, c)) {
      add(name + "_low", false);
      add(name + "_high", false);
    }
  }
  result += "\r\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = cell_at(row, c);
      const auto* interval = std::get_if<Interval>(&cell.value);
      const auto* number = std::get_if<double>(&cell.value);
      const Interval bounds = interval != nullptr ? *interval : Interval{};
      add(interval != nullptr ? full_number(interval->value)
          : number != nullptr ? full_number(*number)
                              : cell_text(cell),
          c == 0);
      if (has_intervals(table, c)) {
        add(full_number(bounds.low), false);
        add(full_number(bounds.high), false);
      }
    }
    result += "\r\n";
  }
  return result;
}

Json figure_json(const Interval& v) {
  return {{"value", number_json(v.value)}, {"low", number_json(v.low)}, {"high", number_json(v.high)}};
}

Json table_json(const Table& table) {
  check(table);
  Json json = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      object[clean_utf8(table.columns[c].name)] = json_value(cell_at(row, c));
    json.push_back(std::move(object));
  }
  return json;
}

}  // namespace kullback
