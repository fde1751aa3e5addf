#include "kullback/report/page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kullback/base/error.h"
#include "kullback/report/escape.h"
#include "kullback/report/page_assets.h"

namespace kullback {
namespace {

/// How much of everything is shown; harder levels make smaller pages.
struct Detail {
  std::size_t text_bytes, samples, rows, points, pieces;
  double density;
  std::size_t code_bytes, plots;
};
constexpr Detail levels[] = {
    {6000, 200, 2000, 1500, 4000, 0.5, 200'000, 500},
    {3000, 100, 500, 500, 2000, 0.3, 60'000, 200},
    {1500, 40, 200, 200, 1000, 0.15, 20'000, 100},
    {600, 15, 60, 60, 300, 0.06, 8'000, 50},
    {200, 5, 12, 20, 60, 0.03, 2'000, 20},
};

class Writer {
 public:
  Writer(const Page& page, const Detail& detail) : page_(page), detail_(detail) {}
  std::string document();

 private:
  std::string head() const;
  std::string header() const;
  std::string block(const Paragraph& paragraph);
  std::string block(const Plots& plots);
  std::string block(const Table& table);
  std::string block(const Samples& samples);
  std::string block(const ShadedText& text);
  std::string block(const Code& code);
  std::string text(std::string_view whole, std::size_t most) const;

  const Page& page_;
  const Detail& detail_;
  Json plots_ = Json::array(), tables_ = Json::array();
};

std::string palette_style() {
  std::string light, dark, use;
  const auto& palette = plot_palette();
  for (std::size_t i = 0; i < palette.size(); ++i) {
    light += fmt::format("--c{}:{};", i, palette[i].light);
    dark += fmt::format("--c{}:{};", i, palette[i].dark);
    use += fmt::format(".s{0}{{stroke:var(--c{0})}}.f{0}{{fill:var(--c{0})}}", i);
  }
  return fmt::format(":root{{color-scheme:light dark;{}}}@media (prefers-color-scheme:dark){{:root{{{}}}}}{}", light,
                     dark, use);
}

const char* tone_class(const HeadlineNumber& number) {
  const Tone tone = change_tone(number.before, number.after, number.better);
  return tone == Tone::good ? "good" : tone == Tone::bad ? "bad" : "plain";
}

std::string number_card(const HeadlineNumber& number) {
  std::string big;
  if (!std::isnan(number.before.value)) {
    big +=
        fmt::format("<span class=\"from\">{} → </span>", escape_html(number_text(number.before.value, number.format)));
  }
  big += fmt::format("<span class=\"{}\">{}</span>", tone_class(number),
                     escape_html(number_text(number.after.value, number.format)));
  if (!number.unit.empty()) big += fmt::format(" <span class=\"unit\">{}</span>", escape_html(number.unit));
  std::string below;
  if (number.after.has_bounds()) {
    below = fmt::format("95% interval {} to {}", number_text(number.after.low, number.format),
                        number_text(number.after.high, number.format));
  }
  if (!number.note.empty()) below += (below.empty() ? "" : "; ") + number.note;
  return fmt::format(
      "<div class=\"number\"><div class=\"label\">{}</div><div class=\"big\">{}</div><div "
      "class=\"interval\">{}</div></div>",
      escape_html(number.label), big, escape_html(below));
}

std::string with_class(std::string markup, std::string_view name) {
  const std::string_view from = "class=\"plot\"";
  return markup.replace(markup.find(from), from.size(), fmt::format("class=\"plot {}\"", name));
}

Json headline_data(const std::vector<HeadlineNumber>& numbers) {
  const auto interval = [](const Interval& i) {
    return std::isnan(i.value) ? Json(nullptr) : Json{{"value", i.value}, {"low", i.low}, {"high", i.high}};
  };
  Json json = Json::array();
  for (const HeadlineNumber& n : numbers) {
    json.push_back({{"name", clean_utf8(n.label)},
                    {"unit", clean_utf8(n.unit)},
                    {"before", interval(n.before)},
                    {"after", interval(n.after)}});
  }
  return json;
}

std::string Writer::text(std::string_view whole, std::size_t most) const {
  bool cut = false;
  const std::string_view part = clip_to_bytes(whole, most, &cut);
  std::string result = escape_html(part);
  if (cut)
    result += fmt::format("<span class=\"muted\"> … (cut: {} of {} bytes are shown)</span>", part.size(), whole.size());
  return result;
}

std::string Writer::block(const Paragraph& paragraph) {
  const char* look = paragraph.kind == Paragraph::Kind::plain   ? ""
                     : paragraph.kind == Paragraph::Kind::muted ? " class=\"muted\""
                                                                : " class=\"warning\"";
  return fmt::format("<p{}>{}</p>\n", look, text(paragraph.text, detail_.text_bytes));
}

std::string Writer::block(const Plots& plots) {
  const bool alone = plots.plots.size() == 1;
  std::string result = fmt::format("<div class=\"plots{}\">", alone ? " alone" : "");
  std::size_t shown = 0;
  for (const Plot& plot : plots.plots) {
    if (plots_.size() >= detail_.plots) break;
    ++shown;
    result += fmt::format("<figure data-plot=\"{}\">", plots_.size());
    const auto add = [&](int width, int height, std::string_view name) {
      result += with_class(svg(plot, {width, height, detail_.density}), name);
    };
    if (alone) {
      add(1100, 420, "wide");
      add(700, 380, "medium");
    } else {
      add(550, 340, "wide");
    }
    add(360, 320, "narrow");
    result += "</figure>";
    Json json = plot_data(plot, detail_.points);
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      const auto place = plot.series[s].colour >= 0 ? static_cast<std::size_t>(plot.series[s].colour) : s;
      json["series"][s]["colour"] = place % plot_palette().size();
    }
    plots_.push_back(std::move(json));
  }
  result += "</div>\n";
  if (shown < plots.plots.size())
    result += fmt::format("<p class=\"muted\">The first {} of {} plots are shown.</p>\n", shown, plots.plots.size());
  return result;
}

std::string Writer::block(const Table& table) {
  Table shown = table;
  if (shown.rows.size() > detail_.rows) shown.rows.resize(detail_.rows);
  tables_.push_back({{"title", clean_utf8(table.title)}, {"rows", table_json(shown)}});
  return table_html(table, detail_.rows) + "\n";
}

std::string Writer::block(const Samples& samples) {
  std::string result;
  const std::size_t shown = std::min(samples.samples.size(), detail_.samples);
  for (std::size_t i = 0; i < shown; ++i) {
    const Sample& sample = samples.samples[i];
    result += fmt::format(
        "<article class=\"sample\"><div class=\"prompt\"><h3>Prompt</h3><div class=\"text\" dir=\"auto\" "
        "tabindex=\"0\">{}</div></div>"
        "<div class=\"answers\">",
        text(sample.prompt, detail_.text_bytes));
    for (const Sample::Answer& answer : sample.answers) {
      const std::string note = answer.note.empty() ? "" : " · " + answer.note;
      result +=
          fmt::format("<div class=\"answer\"><h3>{}</h3><div class=\"text\" dir=\"auto\" tabindex=\"0\">{}</div></div>",
                      escape_html(answer.name + note), text(answer.text, detail_.text_bytes));
    }
    result += "</div></article>\n";
  }
  if (shown < samples.samples.size()) {
    result +=
        fmt::format("<p class=\"muted\">The first {} of {} samples are shown.</p>\n", shown, samples.samples.size());
  }
  return result;
}

std::string Writer::block(const ShadedText& shaded) {
  double full = shaded.full;
  if (full <= 0) {
    for (const auto& piece : shaded.pieces) {
      if (std::isfinite(piece.value)) full = std::max(full, piece.value);
    }
  }
  const std::string unit = shaded.unit.empty() ? "" : " " + shaded.unit;
  std::string result = fmt::format(
      "<div class=\"shaded\"><h3>{}</h3><p class=\"muted\">{}: 0 <span class=\"scale\"></span> {}</p><div "
      "class=\"text\" dir=\"auto\" tabindex=\"0\">",
      escape_html(shaded.title), escape_html(shaded.value_name), escape_html(number_text(full, significant(3)) + unit));
  const std::size_t shown = std::min(shaded.pieces.size(), detail_.pieces);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& piece = shaded.pieces[i];
    const double share = full > 0 && std::isfinite(piece.value) ? std::clamp(piece.value / full, 0.0, 1.0) : 0;
    const std::string note =
        number_text(piece.value, significant(3)) + unit + (piece.note.empty() ? "" : "\n" + piece.note);
    result += fmt::format("<span style=\"--v:{:.2f}\" title=\"{}\">{}</span>", 0.75 * share, escape_html(note),
                          escape_html(piece.text));
  }
  result += "</div>";
  if (shown < shaded.pieces.size())
    result += fmt::format("<p class=\"muted\">The first {} of {} pieces are shown.</p>", shown, shaded.pieces.size());
  return result + "</div>\n";
}

std::string Writer::block(const Code& code) {
  const std::string body = fmt::format("<pre tabindex=\"0\">{}</pre>", text(code.text, detail_.code_bytes));
  if (code.folded) return fmt::format("<details><summary>{}</summary>{}</details>\n", escape_html(code.title), body);
  return fmt::format("<div class=\"code\">{}{}</div>\n",
                     code.title.empty() ? "" : fmt::format("<h3>{}</h3>", escape_html(code.title)), body);
}

std::string Writer::head() const {
  // The policy forbids every load from anywhere: what the page shows is in the page.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>"
      "<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 "
      "16'%3E%3Cpath d='M1 13C5 13 5 3 8 3s3 10 7 10' "
      "fill='none' stroke='%230068b4' stroke-width='2'/%3E%3C/svg%3E\">"
      "<style>{}{}</style></head>\n<body>\n",
      escape_html(page_.title), palette_style(), detail::page_style());
}

std::string Writer::header() const {
  std::string result = fmt::format("<header><div class=\"wrap\"><h1>{}</h1>", escape_html(page_.title));
  for (const std::string& line : page_.summary)
    result += fmt::format("<p class=\"summary\">{}</p>", text(line, detail_.text_bytes));
  if (!page_.numbers.empty()) {
    result += "<div class=\"numbers\">";
    for (const HeadlineNumber& number : page_.numbers) result += number_card(number);
    result += "</div>";
  }
  result += "<nav>";
  for (std::size_t i = 0; i < page_.sections.size(); ++i) {
    result += fmt::format("<a href=\"#section-{}\">{}</a>", i + 1, escape_html(page_.sections[i].title));
  }
  result += fmt::format(
      "<button class=\"action\" id=\"download\" type=\"button\" data-name=\"{}.json\" hidden>Download the data "
      "(JSON)</button>",
      escape_html(page_.file_name));
  return result + "</nav></div></header>\n";
}

std::string Writer::document() {
  std::string result = head() + header() + "<main class=\"wrap\">\n";
  for (std::size_t i = 0; i < page_.sections.size(); ++i) {
    result += fmt::format("<section id=\"section-{}\"><h2>{}</h2>\n", i + 1, escape_html(page_.sections[i].title));
    for (const Block& one : page_.sections[i].blocks)
      result += std::visit([this](const auto& b) { return block(b); }, one);
    result += "</section>\n";
  }
  result += "</main>\n";
  if (!page_.footer.empty()) result += fmt::format("<footer class=\"wrap\">{}</footer>\n", escape_html(page_.footer));
  const Json data{{"title", clean_utf8(page_.title)},
                  {"numbers", headline_data(page_.numbers)},
                  {"plots", std::move(plots_)},
                  {"tables", std::move(tables_)},
                  {"extra", page_.data}};
  result +=
      fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n<script>{}</script>\n</body></html>\n",
                  json_for_script(data), detail::page_script());
  return result;
}

}  // namespace

Tone change_tone(const Interval& before, const Interval& after, Better better) {
  if (better == Better::neither || std::isnan(before.value) || std::isnan(after.value) || before.value == after.value)
    return Tone::plain;
  const bool up = after.value > before.value;
  const bool both = before.has_bounds() && after.has_bounds();
  if (both && (up ? after.low <= before.high : after.high >= before.low)) return Tone::plain;
  return up == (better == Better::higher) ? Tone::good : Tone::bad;
}

std::string page_html(const Page& page, std::size_t limit) {
  std::string document;
  for (const Detail& detail : levels) {
    document = Writer(page, detail).document();
    if (document.size() <= limit) return document;
  }
  fail("the page \"{}\" takes {} even with samples, tables and series cut short; its limit is {}", page.title,
       bytes_text(static_cast<double>(document.size())), bytes_text(static_cast<double>(limit)));
}

}  // namespace kullback
